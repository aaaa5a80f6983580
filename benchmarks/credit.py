"""Exact OAR-P against the naive loop and captum, and how OAR-D grows with length.

    python benchmarks/credit.py [--model FOLDER] [--prompt 40] [--reasoning 200] [--answer 8]
    python benchmarks/credit.py --lengths 64,128,256,512 [--model FOLDER]

All score the same response of random tokens with the same weights, in one process, repeats
interleaved. naive: whole rows, all logits, batches of `--naive-batch` (the fastest of those given).
captum: FeatureAblation at the best of `--captum-evals` perturbations_per_eval. Peak memory is
resident memory over what the process held before, in a run of its own that isn't timed. FLOPs are
counted by torch's FlopCounterMode; "closed form" is the same sum by the formula of
docs/method.md, section 6. Without --model a Llama of SmolLM2-135M's sizes with random weights is
made.
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
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, PreTrainedModel

from oar_bench.config import CreditSettings
from oar_bench.credit.assign import CreditBatch, importance
from oar_bench.credit.memory import Sizes
from oar_bench.credit.probe import TokenSpans, build_probe
from oar_bench.overhead.phases import peak_memory_mb, reset_peak

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
    return CreditBatch(
        ids, torch.ones_like(ids), response, build_probe(response, spans), torch.tensor([1])
    )


def _moved(clean: torch.Tensor, logits: torch.Tensor) -> torch.Tensor:
    """KL of softmaxes of the mean logits, (N,), from clean (A, V) and moved (N, A, V)."""
    a, b = log_softmax(clean.mean(0), -1), log_softmax(logits.mean(1), -1)
    return (a.exp() * (a - b)).sum(-1)


@torch.no_grad()
def naive(model: PreTrainedModel, batch: CreditBatch, size: int) -> torch.Tensor:
    """The loop as the definition reads, in batches of whole rows with all logits."""
    ids, at = batch.input_ids, torch.nonzero(batch.probe.answer[0]).flatten() - 1
    clean = model(ids, use_cache=False).logits[0, at]
    scores = torch.zeros(ids.shape)
    for places in torch.nonzero(batch.probe.reasoning[0]).flatten().split(size):
        rows = ids.repeat(len(places), 1)
        rows[torch.arange(len(places)), places] = PAD
        logits = model(rows, use_cache=False).logits
        scores[0, places] = _moved(clean, logits[:, at])
    return scores


def captums(model: PreTrainedModel, batch: CreditBatch, evals: int) -> torch.Tensor:
    """The same by captum; the answer and the prompt are one feature that isn't asked for."""
    from captum.attr import FeatureAblation

    ids, at = batch.input_ids, torch.nonzero(batch.probe.answer[0]).flatten() - 1
    places = torch.nonzero(batch.probe.reasoning[0]).flatten()
    head, tail = ids[:, : places[0]], ids[:, places[-1] + 1 :]
    with torch.no_grad():
        clean = model(ids, use_cache=False).logits[0, at]

        def forward(middle: torch.Tensor) -> torch.Tensor:
            n = len(middle)
            rows = torch.cat([head.expand(n, -1), middle, tail.expand(n, -1)], 1)
            return _moved(clean, model(rows, use_cache=False).logits[:, at])

        found = FeatureAblation(forward).attribute(
            ids[:, places], baselines=PAD, perturbations_per_eval=evals
        )
    scores = torch.zeros(ids.shape)
    scores[0, places] = -found[0].float()
    return scores


def closed_form(sizes: Sizes, prompt: int, reasoning: int, answer: int) -> float:
    """FLOPs of exact OAR-P with the clean prefix reused: linear layers and answer logits."""
    width = 2 * sizes.head_size * (sizes.heads + sizes.kv_heads)
    weights = sizes.layers * sizes.hidden * (width + 3 * sizes.intermediate)
    total = prompt + reasoning + answer - 1
    tokens = total + reasoning * (reasoning + 1) / 2 + reasoning * (answer - 1)
    head = 2 * sizes.vocabulary * sizes.hidden * answer * (reasoning + 1)
    # Attention: every fed token looks at all W columns, as the kernel computes it.
    attention = 4 * sizes.layers * sizes.heads * sizes.head_size * total * tokens
    return 2 * weights * tokens + head + attention


def peak_mb(score: Score) -> float:
    """MiB that a pass takes over what was resident before it."""
    gc.collect()
    reset_peak()
    before = peak_memory_mb()
    score()
    return peak_memory_mb() - before


def flops(score: Score) -> float:
    """FLOPs as torch counts them."""
    with FlopCounterMode(display=False) as counter:
        score()
    return float(counter.get_total_flops())


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
    passes: dict[str, Score] = {}
    for size in options.naive_batch:
        passes[f"naive, batches of {size}"] = lambda size=size: naive(model, batch, size)
    for evals in options.captum_evals:
        passes[f"captum, {evals} an eval"] = lambda evals=evals: captums(model, batch, evals)
    for memory in options.memory_mib:
        passes[f"oar-p, {memory} MiB"] = ours(model, batch, "oar-p", memory_mib=memory)
    if options.others:
        passes |= {name: ours(model, batch, name) for name in options.others}
    seconds = timed(passes, options.repeats)
    first = next(iter(passes))
    exact, base = passes[first](), flops(passes[first])
    limit = closed_form(Sizes.of(model.config, model.dtype), *shape)
    print(f"P {shape[0]}, R {shape[1]}, A {shape[2]}; {torch.get_num_threads()} threads; "
          f"naive FLOPs {base:.3e}, closed form of exact reuse {limit:.3e}: "
          f"at most {base / limit:.2f}x fewer")  # fmt: skip
    best = min(s for name, s in seconds.items() if name.startswith("naive"))
    print(f"{'':<24}{'seconds':>9}{'speed':>8}{'GFLOP':>9}{'/ closed':>9}{'peak MiB':>10}"
          f"{'max |d|':>10}")  # fmt: skip
    for name, score in passes.items():
        counted, gap = flops(score), float((score() - exact).abs().max())
        print(f"{name:<24}{seconds[name]:>9.2f}{best / seconds[name]:>7.2f}x"
              f"{counted / 1e9:>9.0f}{counted / limit:>9.2f}{peak_mb(score):>10.0f}"
              f"{gap:>10.1e}", flush=True)  # fmt: skip


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


def numbers(text: str) -> list[int]:
    """The numbers of a comma-separated option."""
    return [int(word) for word in text.split(",")]


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
    parser.add_argument("--naive-batch", type=numbers, default=[8, 32])
    parser.add_argument("--captum-evals", type=numbers, default=[8, 32])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--dtype", default="float32")
    options = parser.parse_args()
    if options.model:
        model = AutoModelForCausalLM.from_pretrained(options.model, dtype=options.dtype).eval()
    else:
        model = smollm2_sized()
    if options.lengths:
        by_length(model, options)
    else:
        against_others(model, options)


if __name__ == "__main__":
    main()
