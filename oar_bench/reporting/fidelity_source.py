"""Which responses `oar-bench credit fidelity` looks at: sampled now, worked solutions, a file's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from oar_bench.answers.extract import AnswerType
from oar_bench.engines.base import check_samples
from oar_bench.engines.hf import HFEngine
from oar_bench.engines.tokens import encode
from oar_bench.errors import InputError
from oar_bench.evaluation.asking import Asking
from oar_bench.evaluation.generate import requests_of
from oar_bench.identity import fingerprint, fingerprint_files
from oar_bench.integrations.responses import (
    Grading,
    Response,
    check_fit,
    grading_of,
    read_responses,
)
from oar_bench.keyed import derive
from oar_bench.tasks.registry import LoadedTask

Tick = Callable[[int], None]

_OPTIONS = {
    "--tasks": "--task", "temperature": "--temperature", "max_new_tokens": "--max-new-tokens"
}  # fmt: skip
"""What others call the options of this command."""


@dataclass(frozen=True)
class Source:
    """Where the responses come from, as the options say it; a task or a file."""

    task: str | None = None
    file: Path | None = None
    gold: bool = False
    """Take the task's worked solutions instead of sampling."""
    problems: int | None = None
    samples: int = 1
    temperature: float = 1.0
    seed: int = 0
    answer_type: AnswerType | None = None
    max_tokens: int | None = None
    """Leave out responses with more tokens to rank: OAR-P's cost grows with their square."""
    max_new_tokens: int | None = None
    """Of sampled responses, instead of the task's."""
    asking: Asking = field(default_factory=Asking)

    def check(self) -> None:
        """Refuse options that don't go together, before anything is loaded."""
        if (self.task is None) == (self.file is None):
            raise InputError(
                "a task or a file of responses is needed, and not both", "--task",
                "give --task NAME or --responses FILE",
            )  # fmt: skip
        if self.gold and self.samples > 1:
            raise InputError("a problem has one worked solution", "--samples", "use --samples 1")
        for option, given in self._sampling().items():
            if given and self.file is not None:
                raise InputError("a file's responses are its own", option, "leave it out")
        for option in ("--temperature", "--seed", "--max-new-tokens"):
            if self.gold and self._sampling()[option]:
                raise InputError("worked solutions aren't sampled", option, "leave it out")
        check_samples(self.samples, self.temperature)
        self.asking.check(self.samples)

    def _sampling(self) -> dict[str, bool]:
        """Which options were given that say how a task's responses come about."""
        return {
            "--gold": self.gold, "--samples": self.samples != 1,
            "--temperature": self.temperature != 1.0, "--seed": self.seed != 0,
            "--max-new-tokens": self.max_new_tokens is not None,
            "--data-dir": self.asking.data_dir is not None,
            "--chat-template": self.asking.chat_template,
        }  # fmt: skip


@dataclass(frozen=True)
class Answers:
    """Responses as tokens, what counts as an answer in them, and what they are, in words."""

    responses: list[Response]
    grading: Grading
    about: str
    fingerprints: Mapping[str, str]


def gather(source: Source, model: Path, engine: HFEngine, tick: Tick) -> Answers:
    """The responses of a source; `tick` is called with the number of them at hand.

    Raises:
        InputError: as the task or the file raises it; no solution, or a response beyond the
            model's context.
    """
    if source.file is not None:
        found = _of_file(source, source.file, engine)
    else:
        found = _of_task(source, model, engine, tick)
    for response in found.responses:
        check_fit(response, engine.model, f"problem {response.name['problem']}")
    tick(len(found.responses))
    return found


def _of_file(source: Source, file: Path, engine: HFEngine) -> Answers:
    responses = read_responses(file, engine.tokenizer)
    names = list(dict.fromkeys(response.name["problem"] for response in responses))
    if source.problems is not None:
        kept = set(names[: source.problems])
        responses = [response for response in responses if response.name["problem"] in kept]
    grading = grading_of(file, source.answer_type)
    prints = {"responses": fingerprint_files([file])}
    return Answers(responses, grading, f"the responses of {file.name}", prints)


def _of_task(source: Source, model: Path, engine: HFEngine, tick: Tick) -> Answers:
    try:
        ((task, sampling),) = source.asking.load(
            [str(source.task)], model, limit=source.problems, temperature=source.temperature,
            top_p=1.0, max_new_tokens=source.max_new_tokens,
        )  # fmt: skip
    except InputError as error:
        where = _OPTIONS.get(error.where, error.where)
        raise InputError(error.message, where, error.mend) from error
    grading = Grading.of(task.grading, source.answer_type)
    if source.gold:
        about = f"worked solutions to {task.name}"
        return Answers(_solutions(task, engine), grading, about, task.fingerprints)
    requests = requests_of(task, source.samples, source.seed)
    prompts = {question.problem: encode(engine.tokenizer, question.prompt)
               for question in task.questions}  # fmt: skip
    found = {}
    for done, completion in enumerate(engine.generate(requests, sampling), start=1):
        of, ids = completion.request, list(completion.token_ids)
        found[of] = Response(
            {"problem": of.problem, "sample": of.sample}, prompts[of.problem], ids, of.seed,
            encoded=False, other_length=False,
        )  # fmt: skip
        tick(done)
    drawn = fingerprint([sampling.settings(), source.samples, source.seed])
    return Answers(
        [found[request] for request in requests], grading, f"responses sampled to {task.name}",
        {**task.fingerprints, "sampling": drawn},
    )  # fmt: skip


def _solutions(task: LoadedTask, engine: HFEngine) -> list[Response]:
    """Each problem's worked solution as the response to its prompt."""
    found = []
    for question in task.questions:
        if not question.solution:
            raise InputError(
                f"problem {question.problem} has no worked solution", f"--gold, task {task.name}",
                "add a field `solution` to its row, or leave --gold out",
            )  # fmt: skip
        ids = engine.tokenizer(question.solution, add_special_tokens=False)["input_ids"]
        found.append(Response(
            {"problem": question.problem, "sample": 0}, encode(engine.tokenizer, question.prompt),
            list(ids), derive("solution", task.name, question.problem),
            encoded=True, other_length=False,
        ))  # fmt: skip
    return found
