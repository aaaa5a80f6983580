"""Exact OAR-P against the naive loop and captum, and how OAR-D grows with length.

    python benchmarks/credit.py [--model FOLDER] [--prompt 40] [--reasoning 200] [--answer 8]
    python benchmarks/credit.py --lengths 64,128,256,512 [--model FOLDER]

All score the same response of random tokens with the same weights, in one process, repeats
interleaved. naive: whole rows, all logits. captum: FeatureAblation. Both are given the fastest of
`--sizes` rows a batch, found by a trial on a few positions. Peak memory is resident memory over
what the process held before, and FLOPs are counted by torch's counter, both in a further pass that
isn't timed; "closed form" is the same sum by `oar_bench.overhead.flops.oar_p`. Without --model a
Llama of SmolLM2-135M's sizes with random weights is made.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import log_softmax
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, PreTrainedModel

from oar_bench.config import CreditSettings
from oar_bench.credit.assign import CreditBatch, importance
from oar_bench.credit.probe import TokenSpans, build_probe
from oar_bench.overhead.counter import counter
from oar_bench.overhead.flops import Layout, Work, oar_p
from oar_bench.overhead.phases import peak_memory_mb, reset_peak
from oar_bench.stages import numbers

PAD = 0
Score = Callable[[], torch.Tensor]


def smollm2_sized() -> PreTrainedModel:
    """Random weights in SmolLM2-135M's shape."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30,
        num_attention_heads=9, num_key_value_heads=3, max_position_embeddings=2048,
        tie_word_embeddings=True, initializer_range=0.05,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval()


def batch_of(model: PreTrainedModel, prompt: int, reasoning: int, answer: int) -> CreditBatch:
    """One response of random tokens: prompt, reasoning, answer."""
    generator = torch.Generator().manual_seed(1)
    length = prompt + reasoning + answer
    high = model.config.get_text_config().vocab_size
    ids = torch.randint(3, high, (1, length), generator=generator)
    response = (torch.arange(length) >= prompt)[None]
    spans = [TokenSpans(reasoning, reasoning, reasoning + answer)]
    ids, response = ids.to(model.device), response.to(model.device)
    seeds = torch.tensor([1], device=model.device)
    return CreditBatch(ids, torch.ones_like(ids), response, build_probe(response, spans), seeds)


def _moved(clean: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
    """KL of softmaxes of the mean logits, (N,), from clean (A, V) and moved (N, A, V)."""
    a, b = log_softmax(clean.mean(0), -1), log_softmax(logits.mean(1), -1)
    return (a.exp() * (a - b)).sum(-1)


@torch.no_grad()
def naive(
    model: PreTrainedModel, batch: CreditBatch, size: int, most: int | None = None
) -> torch.Tensor:
    """The loop as the definition reads, in batches of whole rows with all logits.

    `most`: only so many positions, for a trial.
    """
    ids, at = batch.input_ids, torch.nonzero(batch.probe.answer[0]).flatten() - 1
    clean = model(ids, use_cache=False).logits[0, at]
    scores = torch.zeros(ids.shape, device=ids.device)
    for places in torch.nonzero(batch.probe.reasoning[0]).flatten()[:most].split(size):
        rows = ids.repeat(len(places), 1)
        rows[torch.arange(len(places)), places] = PAD
        logits = model(rows, use_cache=False).logits
        scores[0, places] = _moved(clean, logits[:, at])
    return scores


def captums(
    model: PreTrainedModel, batch: CreditBatch, size: int, most: int | None = None
) -> torch.Tensor:
    """The same by captum's feature ablation of the reasoning."""
    from captum.attr import FeatureAblation

    ids, at = batch.input_ids, torch.nonzero(batch.probe.answer[0]).flatten() - 1
    places = torch.nonzero(batch.probe.reasoning[0]).flatten()[:most]
    head, tail = ids[:, : places[0]], ids[:, places[-1] + 1 :]
    with torch.no_grad():
        clean = model(ids, use_cache=False).logits[0, at]

        def forward(middle: torch.Tensor) -> torch.Tensor:
            n = len(middle)
            rows = torch.cat([head.expand(n, -1), middle, tail.expand(n, -1)], 1)
            return _moved(clean, model(rows, use_cache=False).logits[:, at])

        found = FeatureAblation(forward).attribute(
            ids[:, places], baselines=PAD, perturbations_per_eval=size
        )
    scores = torch.zeros(ids.shape, device=ids.device)
    scores[0, places] = -found[0].float()
    return scores


def weighed(score: Score) -> tuple[torch.Tensor, float, float]:
    """Scores, FLOPs as torch counts them, and peak MiB over what was resident before."""
    gc.collect()
    reset_peak()
    before = peak_memory_mb()
    with counter() as counted:
        scores = score()
    return scores, float(counted.get_total_flops()), peak_memory_mb() - before


def fastest(of: Callable[..., torch.Tensor], sizes: list[int], *parts: Any) -> int:
    """The size of batch at which 32 positions are scored fastest."""
    passes: dict[str, Score] = {str(size): lambda size=size: of(*parts, size, 32) for size in sizes}
    seconds = timed(passes, 1)
    return int(min(seconds, key=lambda size: seconds[size]))


def timed(passes: dict[str, Score], repeats: int) -> dict[str, float]:
    """Median seconds of each, interleaved."""
    seconds: dict[str, list[float]] = {name: [] for name in passes}
    for _ in range(repeats):
        for name, score in passes.items():
            start = time.perf_counter()
            score()
            seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(of) for name, of in seconds.items()}


def ours(model: PreTrainedModel, batch: CreditBatch, method: str, **settings: Any) -> Score:
    """One of our importances."""
    return lambda: importance(method, model, batch, CreditSettings(**settings), PAD)


def against_others(model: PreTrainedModel, options: argparse.Namespace) -> None:
    """The table of exact OAR-P."""
    shape = (options.prompt, options.reasoning, options.answer)
    batch = batch_of(model, *shape)
    sizes = [fastest(of, options.sizes, model, batch) for of in (naive, captums)]
    passes: dict[str, Score] = {
        f"naive, batches of {sizes[0]}": lambda: naive(model, batch, sizes[0]),
        f"captum, {sizes[1]} an eval": lambda: captums(model, batch, sizes[1]),
    }
    for memory in options.memory_mib:
        passes[f"oar-p, {memory} MiB"] = ours(model, batch, "oar-p", memory_mib=memory)
    for name in options.others or ():
        passes[name] = ours(model, batch, name)
    seconds = timed(passes, options.repeats)
    found = {name: weighed(score) for name, score in passes.items()}
    first = next(iter(passes))
    exact, base, _ = found[first]
    layout = Layout(options.prompt, options.reasoning, options.answer, options.answer)
    limit = oar_p(Work.of_model(model), layout)
    print(f"P {shape[0]}, R {shape[1]}, A {shape[2]}; {torch.get_num_threads()} threads, median of "
          f"{options.repeats}; naive FLOPs {base:.3e}, closed form of exact reuse {limit:.3e}: "
          f"at most {base / limit:.2f}x fewer")  # fmt: skip
    print(f"{'':<24}{'seconds':>9}{'speed':>8}{'GFLOP':>9}{'/ closed':>9}{'peak MiB':>10}"
          f"{'max |d|':>10}")  # fmt: skip
    for name, (scores, counted, peak) in found.items():
        print(f"{name:<24}{seconds[name]:>9.2f}{seconds[first] / seconds[name]:>7.2f}x"
              f"{counted / 1e9:>9.0f}{counted / limit:>9.2f}{peak:>10.0f}"
              f"{float((scores - exact).abs().max()):>10.1e}", flush=True)  # fmt: skip


def by_length(model: PreTrainedModel, options: argparse.Namespace) -> None:
    """The table of OAR-D: seconds of each method at each length of the reasoning."""
    names = ["oar-p", *(options.others or ["oar-d"])]
    print(f"{'R':>5}" + "".join(f"{name:>18}" for name in names) + "   seconds (speed over oar-p)")
    for length in options.lengths:
        batch = batch_of(model, options.prompt, length, options.answer)
        passes = {name: ours(model, batch, name) for name in names}
        seconds = timed(passes, options.repeats)
        cells = (f"{seconds[n]:>10.2f} ({seconds['oar-p'] / seconds[n]:>4.1f}x)" for n in names)
        print(f"{length:>5}" + "".join(f"{cell:>18}" for cell in cells), flush=True)


def main() -> None:
    """Prints one of the two tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--prompt", type=int, default=40)
    parser.add_argument("--reasoning", type=int, default=200)
    parser.add_argument("--answer", type=int, default=8)
    parser.add_argument("--lengths", type=numbers)
    parser.add_argument("--others", type=lambda text: text.split(","))
    parser.add_argument("--memory-mib", type=numbers, default=[256])
    parser.add_argument("--sizes", type=numbers, default=[4, 8, 16, 32])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--dtype", default="float32")
    options = parser.parse_args()
    if options.model:
        model = AutoModelForCausalLM.from_pretrained(options.model, dtype=options.dtype).eval()
    else:
        model = smollm2_sized()
    if torch.cuda.is_available():
        model.to("cuda")  # type: ignore[arg-type]
    if options.lengths:
        by_length(model, options)
    else:
        against_others(model, options)


if __name__ == "__main__":
    main()
