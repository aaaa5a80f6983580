"""The warm start: supervised training on worked solutions until RL has something to sharpen.

Adaptive: it stops when the sampled held-out accuracy reaches the recipe's target, since the
transition is so sharp that a fixed number of steps would give anything. The result is cached
under the fingerprint of all that it depends on, and an interrupted one goes on where it was.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch.nn.functional import cross_entropy
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from oar_bench.answers import Grader
from oar_bench.config import SIZES, Recipe, WarmStartSettings
from oar_bench.engines.base import Request, Sampling
from oar_bench.engines.hf import HFEngine, eos_ids, load_model, pad_id
from oar_bench.engines.tokens import encode
from oar_bench.errors import InputError
from oar_bench.identity import fingerprint, versions
from oar_bench.keyed import derive
from oar_bench.records import owned
from oar_bench.resources import cache_folder
from oar_bench.tasks.problems import ANSWER_TYPE, problems
from oar_bench.training.checkpoint import (
    fill_optimizer,
    is_whole,
    latest_checkpoint,
    load_state,
    optimizer_tensors,
    save_checkpoint,
    tidy,
)
from oar_bench.training.model import pad_batch, tiny_model, word_tokenizer

VERSION = 1  # raised when this file or the problems change what a warm start learns
SAVE_EVERY = 100

Progress = Callable[[int, int, float], None]
"""Called with the step, the cap and the last accuracy."""


def warmstart_fingerprint(recipe: Recipe) -> str:
    """Names the warm start of a recipe: model, problems, settings and the versions of torch."""
    packages = versions()
    return fingerprint(
        {
            "version": VERSION,
            "family": recipe.family,
            "model": recipe.model.model_dump(mode="json", include=set(SIZES)),
            "warmstart": recipe.warmstart.model_dump(mode="json") if recipe.warmstart else None,
            "max_new_tokens": recipe.train.max_new_tokens,
            "packages": {name: packages.get(name) for name in ("torch", "transformers")},
        }
    )


def warm_start(recipe: Recipe, progress: Progress = lambda step, cap, accuracy: None) -> Path:
    """The checkpoint that a recipe's runs begin from: cached, resumed, or trained now.

    Raises:
        InputError: the accuracy never reached the target within `max_steps`.
    """
    if recipe.warmstart is None:
        raise InputError("this recipe has neither a model path nor a warm start", recipe.name)
    folder = cache_folder() / "warmstarts" / warmstart_fingerprint(recipe)
    done = folder / "done"
    if is_whole(done):
        return done
    with owned(folder, wait=True):  # another process may be at the same warm start
        if not is_whole(done):
            _make(recipe, recipe.warmstart, folder, done, progress)
    return done


def _make(
    recipe: Recipe, settings: WarmStartSettings, folder: Path, done: Path, progress: Progress
) -> None:
    """Train the warm start, from its last partial checkpoint if there is one, into `done`."""
    partial = folder / "partial"
    torch.set_num_threads(recipe.model.threads)
    tokenizer: PreTrainedTokenizerBase = word_tokenizer()
    resumed = latest_checkpoint(partial)
    model: PreTrainedModel
    if resumed is not None:
        model = load_model(resumed)[0]
    else:
        model = tiny_model(recipe.model, tokenizer, derive("model", settings.seed) % 2**31)
    accuracy, step = _train(recipe, settings, model, tokenizer, partial, resumed, progress)
    shutil.rmtree(done, ignore_errors=True)
    save_checkpoint(done, model, tokenizer, state={"step": step, "accuracy": accuracy})
    shutil.rmtree(partial, ignore_errors=True)


def _train(
    recipe: Recipe,
    settings: WarmStartSettings,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    partial: Path,
    resumed: Path | None,
    progress: Progress,
) -> tuple[float, int]:
    """Train `model` in place until it reaches the target; the accuracy and the step it did."""
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=settings.lr, betas=(0.9, 0.98), weight_decay=settings.weight_decay
    )
    first = 1
    if resumed is not None:
        tensors, numbers = load_state(resumed)
        fill_optimizer(optimizer, dict(model.named_parameters()), tensors)
        first = int(numbers["step"]) + 1
        tidy(partial)
    accuracy = 0.0
    for step in range(first, settings.max_steps + 1):
        for group in optimizer.param_groups:
            group["lr"] = settings.lr * min(1.0, step / settings.warmup_steps)
        loss = _supervised_loss(recipe.family, settings, model, tokenizer, step)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % settings.check_every == 0:
            accuracy = _sampled_accuracy(recipe, settings, model, tokenizer, step)
        progress(step, settings.max_steps, accuracy)
        if accuracy >= settings.target:
            return accuracy, step
        if step % SAVE_EVERY == 0:
            state: dict[str, Any] = {"step": step, "accuracy": accuracy}
            target = partial / f"step-{step:06d}"
            shutil.rmtree(target, ignore_errors=True)
            tensors = optimizer_tensors(optimizer, dict(model.named_parameters()))
            save_checkpoint(target, model, tokenizer, trainer=tensors, state=state)
            tidy(partial)
    raise InputError(
        f"the warm start reached {accuracy:.2f} of the sampled accuracy {settings.target:.2f} "
        f"that it needs in {settings.max_steps} steps",
        f"recipe {recipe.name}",
        "raise warmstart.max_steps or lower warmstart.target",
    )


def _supervised_loss(
    family: str,
    settings: WarmStartSettings,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    step: int,
) -> torch.Tensor:
    """Cross-entropy over the solution tokens of a fresh batch of training problems."""
    seed = derive("warmstart", settings.seed, step)
    batch = list(islice(problems(family, "train", seed), settings.batch_size))
    end = eos_ids(model, tokenizer)[0]
    ids, attention, response = pad_batch(
        [encode(tokenizer, p.prompt) for p in batch],
        [[*encode(tokenizer, p.solution), end] for p in batch],
        pad_id(tokenizer),
        side="right",
    )
    logits = model(input_ids=ids, attention_mask=attention, use_cache=False).logits[:, :-1]
    targets = ids[:, 1:].masked_fill(~response[:, 1:], -100)
    return cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-100)


def _sampled_accuracy(
    recipe: Recipe,
    settings: WarmStartSettings,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    step: int,
) -> float:
    """Mean accuracy of responses sampled at temperature 1 to held-out problems of its own seed."""
    seed = derive("warmstart-check", settings.seed)
    asked = list(islice(problems(recipe.family, "test", seed), settings.check_problems))
    golds = {problem.id: problem.answer for problem in asked}
    requests = [
        Request(p.id, k, p.prompt, derive("warmstart-check", settings.seed, step, p.id, k))
        for p in asked
        for k in range(settings.check_samples)
    ]
    sampling = Sampling(max_new_tokens=recipe.train.max_new_tokens)
    with Grader(answer_type=ANSWER_TYPE) as grader:
        right = [
            grader.grade(done.response, golds[done.request.problem]).correct
            for done in HFEngine(model, tokenizer, batch_size=256).generate(requests, sampling)
        ]
    return sum(right) / len(right)
