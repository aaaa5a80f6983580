"""How the tasks of a command are asked: data, prompts, shard, probe, or a dry run only.

Light: the command line reads this file for `--help` too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from oar_bench.errors import InputError

if TYPE_CHECKING:
    from oar_bench.engines.base import Sampling
    from oar_bench.evaluation.shards import Shard
    from oar_bench.tasks.registry import LoadedTask, Prompting


@dataclass(frozen=True)
class Asking:
    """The options that `generate` and `evaluate` share beside sampling and engine."""

    data_dir: Path | None = None
    chat_template: bool = False
    system: str | None = None
    fewshot: int | None = None
    shard: str | None = None
    probe: str | None = None
    dry_run: bool = False
    elsewhere: bool = False
    """Whether tasks that our runner can't ask may be left to lm-eval (`evaluate` only)."""

    def check(self, samples: int) -> None:
        """Refuse what can't go together, before anything is loaded."""
        from oar_bench.evaluation.probe import parse_probe
        from oar_bench.evaluation.shards import Shard

        if self.shard is not None:
            Shard.parse(self.shard)
        if self.data_dir is not None and not self.data_dir.is_dir():
            raise InputError("no such folder", f"--data-dir {self.data_dir}")
        if self.system is not None and not self.chat_template:
            raise InputError(
                "a system prompt needs the chat template", "--system", "add --chat-template"
            )
        if self.probe is not None:
            parse_probe(self.probe)
            if self.chat_template or self.fewshot is not None:
                raise InputError(
                    "a probe gives the bare question", "--probe",
                    "leave --chat-template, --system and --fewshot out",
                )  # fmt: skip
            if samples > 1:
                raise InputError("a probe is greedy", "--probe", "use --samples 1")

    def check_others(self, names: list[str], samples: int, engine: str) -> None:
        """Refuse options that only our runner knows for tasks that lm-eval itself runs."""
        if not names:
            return
        used = {
            "--shard": self.shard, "--probe": self.probe, "--dry-run": self.dry_run,
            "--data-dir": self.data_dir, "--samples": samples > 1, "--engine": engine != "hf",
        }  # fmt: skip
        for option, value in used.items():
            if value:
                raise InputError(
                    f"{names[0]} runs through lm-eval, which has no such option", option,
                    "leave it out for this task",
                )  # fmt: skip

    def prompting(self, model: Path) -> Prompting:
        """The part that makes prompts; reads the model's chat template if it is wanted."""
        from oar_bench.tasks.chat import chat_template_of
        from oar_bench.tasks.registry import Prompting

        template = chat_template_of(model) if self.chat_template else None
        return Prompting(self.data_dir, self.fewshot, template, self.system)

    def part(self) -> Shard | None:
        """The shard, if one is asked for."""
        from oar_bench.evaluation.shards import Shard

        return None if self.shard is None else Shard.parse(self.shard)

    def folder(self, base: Path, task: LoadedTask) -> Path:
        """Where an evaluation lies; a probe has a folder of its own."""
        name = task.name if task.probe is None else f"{task.name}.probe-{task.probe}"
        return base / name.replace(":", "-")

    def load(
        self, names: list[str], model: Path, *, limit: int | None, temperature: float,
        top_p: float, max_new_tokens: int | None,
    ) -> list[tuple[LoadedTask, Sampling]]:  # fmt: skip
        """The tasks as they are asked, each with its sampling."""
        from oar_bench.evaluation.generate import sampling_of
        from oar_bench.evaluation.probe import parse_probe, probe_sampling, probe_task
        from oar_bench.tasks.registry import load_task

        prompting, found = self.prompting(model), []
        count = token_counter(model, "--probe") if self.probe is not None else None
        for name in names:
            task = load_task(name, limit=limit, prompting=prompting)
            if count is not None and self.probe is not None:
                task = probe_task(task, parse_probe(self.probe))
                found.append((task, probe_sampling(task, count)))
                continue
            sampling = sampling_of(
                task, temperature=temperature, top_p=top_p, max_new_tokens=max_new_tokens
            )
            found.append((task, sampling))
        return found


def token_counter(model: Path, where: str) -> Callable[[str], int]:
    """Counts the tokens of a prompt as the engine makes them."""
    from oar_bench.engines.tokens import encode
    from oar_bench.tasks.chat import load_tokenizer

    tokenizer = load_tokenizer(model, where)
    return lambda text: len(encode(tokenizer, text))
