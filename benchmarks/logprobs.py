"""Peak memory of a forward and backward pass through log-probabilities: the plain way and ours.

    python benchmarks/logprobs.py [--model FOLDER] [--rows 4] [--prompt 128] [--lengths 128,256,512]

plain: logits of all response columns, then log_softmax in float32 and gather, as a trainer writes
it down first. ours: `LogprobModel`, in parts of `--logits-mib`. Both take the gradient of the same
sum; "difference" is the largest between their gradients over the largest gradient. Each pass runs
in a process of its own: memory that an allocator keeps from the one would hide the other's. Peak is
resident memory over what the process held with the model and its gradients. Without --model a
Llama of SmolLM2-135M's sizes with random weights is made.
"""

from __future__ import annotations

import argparse
import multiprocessing as mp
import time
from pathlib import Path
from typing import Any

import psutil
import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from oar_bench.overhead.phases import peak_memory_mb, reset_peak
from oar_bench.stages import numbers
from oar_bench.training.logprobs import LogprobModel


def loaded(folder: Path | None, dtype: str) -> Any:
    if folder is not None:
        return AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=49152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30,
        num_attention_heads=9, num_key_value_heads=3, max_position_embeddings=8192,
        tie_word_embeddings=True,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval().to(getattr(torch, dtype))


def plain(model: Any, ids: torch.Tensor, response: torch.Tensor) -> torch.Tensor:
    columns = torch.nonzero(response.any(0)).flatten()
    logits = model(input_ids=ids, logits_to_keep=columns - 1, use_cache=False).logits
    table = logits.float().log_softmax(-1)
    return table.gather(2, ids[:, columns, None])[:, :, 0]


def one(way: str, args: argparse.Namespace, length: int, queue: Any) -> None:
    torch.set_num_threads(args.threads)
    model = loaded(args.model, args.dtype)
    if args.checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
        model.train()
    vocabulary = int(model.config.vocab_size)
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(3, vocabulary, (args.rows, args.prompt + length), generator=generator)
    response = torch.zeros(ids.shape, dtype=torch.bool)
    response[:, args.prompt :] = True
    scorer = LogprobModel(model, 1.0, args.logits_mib)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    before = psutil.Process().memory_info().rss / 2**20
    reset_peak()
    start = time.perf_counter()
    if way == "plain":
        values = plain(model, ids, response)
    else:
        values = scorer(ids, torch.ones_like(ids), response).logprobs[:, args.prompt :]
    values.sum().backward()
    seconds, peak = time.perf_counter() - start, peak_memory_mb() - before
    queue.put((seconds, peak, model.get_input_embeddings().weight.grad[:2000].clone().numpy()))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path)
    parser.add_argument("--rows", type=int, default=4)
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--lengths", type=numbers, default=[128, 256, 512])
    parser.add_argument("--logits-mib", type=int, default=128)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--checkpointing", action="store_true")
    args = parser.parse_args()
    print("| length | plain MiB | ours MiB | ratio | plain s | ours s | difference |")
    print("|--:|--:|--:|--:|--:|--:|--:|")
    context = mp.get_context("spawn")
    for length in args.lengths:
        found = {}
        for way in ("plain", "ours"):
            queue = context.Queue()
            process = context.Process(target=one, args=(way, args, length, queue))
            process.start()
            found[way] = queue.get()
            process.join()
        (s1, m1, g1), (s2, m2, g2) = found["plain"], found["ours"]
        gap = abs(g1 - g2).max() / abs(g1).max()
        print(
            f"| {length} | {m1:.0f} | {m2:.0f} | {m1 / m2:.2f} | {s1:.1f} | {s2:.1f} | {gap:.0e} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
