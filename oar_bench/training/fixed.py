"""Training steps of a fixed size, to be timed: prompt, reasoning and answer have stated lengths.

Each response is really sampled, token by token and never ended early, under the recipe's sampling.
Then its last tokens are replaced by a stated answer, `#### 7 7 7 7`: the gold in every other
response of a group, a wrong one in the others. So grading and probe do their real work, and every
response has an advantage: no credit is saved, the worst case. From there on the step is the
trainer's own.

The learning rate is too small to change a weight, though the optimizer does all its work: so
whatever was measured before, a repeat's methods see equal responses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import cycle, islice

from transformers import PreTrainedTokenizerBase

from oar_bench.answers import Grader
from oar_bench.config import Recipe
from oar_bench.engines.base import Sampling
from oar_bench.engines.hf import Sampled, check_context, context_limit, sample
from oar_bench.engines.tokens import encode, response_text
from oar_bench.errors import InputError
from oar_bench.keyed import derive
from oar_bench.overhead.flops import Layout
from oar_bench.overhead.phases import PhaseTimer
from oar_bench.tasks.problems import ANSWER_MARK, Problem, distinct
from oar_bench.training.rollout import Rollout, answer_spans, gather
from oar_bench.training.trainer import Trainer

STILL = 1e-20
"""A learning rate that leaves float32 and bfloat16 weights as they are."""
FILLER = " so"


def still(recipe: Recipe, prompts: int, group_size: int, longest: int) -> Recipe:
    """The recipe with the bench's batch and problems, a rate that changes nothing, no decay."""
    train = recipe.train.model_copy(update={
        "prompts_per_step": prompts, "group_size": group_size, "max_new_tokens": longest,
        "lr": STILL, "weight_decay": 0.0, "warmup_steps": 0, "lr_schedule": "constant",
    })  # fmt: skip
    return recipe.model_copy(update={"train": train, "data": None})


@dataclass(frozen=True)
class _Tail:
    """The ids that end each response: the answer's mark, then the gold or a wrong answer."""

    mark: list[int]
    gold: list[int]
    wrong: list[int]
    filler: list[int]

    @classmethod
    def of(cls, tokenizer: PreTrainedTokenizerBase, tokens: int) -> _Tail:
        """With an answer of so many tokens: one digit, repeated."""

        def ids(text: str) -> list[int]:
            found: list[int] = tokenizer(text, add_special_tokens=False)["input_ids"]
            return found

        return cls(
            ids(f" {ANSWER_MARK}"), ids("7")[-1:] * tokens, ids("3")[-1:] * tokens, ids(FILLER)
        )


class FixedSteps:
    """Steps of a trainer at fixed lengths; called as `oar_bench.overhead.bench.Step`."""

    def __init__(
        self, trainer: Trainer, grader: Grader, prompt_tokens: int, answer_tokens: int,
        lengths: Sequence[int],
    ) -> None:  # fmt: skip
        """Prepare.

        Args:
            trainer: of a recipe made by `still`.
            grader: of the trainer's answer type.
            prompt_tokens, answer_tokens: P and A.
            lengths: the response lengths to come: reasoning, answer prefix and answer.

        Raises:
            InputError: a length beyond the model's context, or too short for the answer.
        """
        self.trainer, self.grader, self.prompt_tokens = trainer, grader, prompt_tokens
        self.tail = _Tail.of(trainer.tokenizer, answer_tokens)
        self.replaced: Counter[int] = Counter()
        """By repeat, responses whose sampled reasoning held an answer mark too: overwritten."""
        shortest = len(self.tail.mark) + answer_tokens + 1
        if min(lengths) < shortest:
            raise InputError(
                f"a response of {min(lengths)} tokens has no room for reasoning and an answer of "
                f"{answer_tokens}", "--lengths", f"use at least {shortest}",
            )  # fmt: skip
        context = context_limit(trainer.model)
        if context is not None and prompt_tokens > context - shortest:
            raise InputError(
                f"prompts of {prompt_tokens} tokens leave no room for a response in the model's "
                f"context of {context}", "--prompt-tokens", f"use at most {context - shortest}",
            )  # fmt: skip
        for length in lengths:
            self._sampling(length)

    def layout(self, length: int) -> Layout:
        """The tokens of a response of that length."""
        region = len(self.tail.mark) + len(self.tail.gold)
        return Layout(self.prompt_tokens, length - region, region, len(self.tail.gold))

    def _sampling(self, length: int) -> Sampling:
        settings = self.trainer.settings
        sampling = Sampling(settings.temperature, settings.top_p, length)
        try:
            check_context(self.prompt_tokens, sampling, self.trainer.model)
        except InputError as error:
            raise InputError(
                f"prompts of {self.prompt_tokens} and responses of {length} tokens exceed the "
                "model's context", "--lengths", error.mend,
            ) from error  # fmt: skip
        return sampling

    def __call__(self, method: str, length: int, timer: PhaseTimer) -> None:
        """One step of a method, in the phases of a training step."""
        trainer, settings = self.trainer, self.trainer.settings
        repeat = timer.step
        problems = [p for p in self._problems(repeat) for _ in range(settings.group_size)]
        prompts = [
            list(islice(cycle(encode(trainer.tokenizer, p.prompt)), self.prompt_tokens))
            for p in problems
        ]
        keys = [derive("overhead", trainer.seed, repeat, i) for i in range(len(problems))]
        with timer.phase("rollout") as row:
            drawn = sample(
                trainer.model, trainer.tokenizer, prompts, keys, self._sampling(length),
                full_length=True,
            )  # fmt: skip
            rollout = gather(trainer.tokenizer, problems, keys, drawn, trainer.model.device)
            row["tokens"] = rollout.response_tokens
        trainer.method = method
        answering = self._answering(rollout, length, repeat)
        grades = trainer.grade(answering, self.grader, timer)
        metrics = trainer.learn(repeat + 1, answering, grades, timer).metrics
        if metrics["frac_zero_std"] or metrics["frac_no_probe"]:
            raise InputError(
                "a stated answer isn't graded as it was meant", "--answer-tokens",
                "this tokenizer doesn't write one digit a token",
            )  # fmt: skip

    def _problems(self, repeat: int) -> list[Problem]:
        """Problems of the recipe's family whose gold is the one that responses state."""
        recipe, tokenizer = self.trainer.recipe, self.trainer.tokenizer
        gold = response_text(tokenizer, self.tail.gold).strip()
        found = distinct(
            recipe.family, "train", recipe.train.prompts_per_step, derive("overhead", repeat)
        )
        return [replace(problem, answer=gold) for problem in found]

    def _answering(self, rollout: Rollout, length: int, repeat: int) -> Rollout:
        """The rollout with its responses' last tokens replaced by a stated answer."""
        tail, layout = self.tail, self.layout(length)
        answers = [
            [*tail.mark, *(tail.gold if i % 2 == 0 else tail.wrong)]
            for i in range(len(rollout.responses))
        ]
        reasoning = [ids[: layout.reasoning] for ids in rollout.responses]
        plain = list(islice(cycle(tail.filler), layout.reasoning))
        made = self._with(rollout, reasoning, answers)
        bad = self._misplaced(made, layout)
        if bad:
            self.replaced[repeat] += len(bad)
            made = self._with(
                rollout, [plain if i in bad else ids for i, ids in enumerate(reasoning)], answers
            )
            if self._misplaced(made, layout):
                raise InputError(
                    f"an answer of {layout.answer} tokens isn't found again in the text",
                    "--answer-tokens", "this tokenizer doesn't write one digit a token",
                )  # fmt: skip
        return made

    def _with(
        self, rollout: Rollout, reasoning: list[list[int]], answers: list[list[int]]
    ) -> Rollout:
        responses = [[*r, *a] for r, a in zip(reasoning, answers, strict=True)]
        drawn = Sampled(rollout.prompts, responses, [True] * len(responses))
        return gather(
            self.trainer.tokenizer, rollout.problems, rollout.seeds, drawn,
            rollout.input_ids.device,
        )  # fmt: skip

    def _misplaced(self, rollout: Rollout, layout: Layout) -> set[int]:
        """Numbers of the responses whose reasoning or answer isn't where it was put."""
        ends = layout.reasoning, layout.response - layout.answer, layout.response
        spans = answer_spans(self.trainer.tokenizer, rollout.texts, rollout.responses)
        return {
            i
            for i, s in enumerate(spans)
            if s is None or (s.reasoning_end, s.answer_start, s.answer_end) != ends
        }
