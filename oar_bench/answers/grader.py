r"""The grader: limits, extraction, exact comparison, memo, symbolic workers, in that order.

>>> with Grader() as grader:
...     result = grader.grade("So it is $\\boxed{0.5}$.", "\\frac{1}{2}")
>>> result.status, result.extracted, result.how, result.stage
('correct', '0.5', 'boxed', 'rational')
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from importlib import metadata
from types import TracebackType
from typing import NamedTuple

from oar_bench.answers.decide import Decision, decide
from oar_bench.answers.exact import same_fast
from oar_bench.answers.extract import (
    AnswerType,
    Extraction,
    ExtractMode,
    extract_answer,
    first_number,
)
from oar_bench.answers.grades import Grade, Status
from oar_bench.answers.normalize import clean, strip_wrappers
from oar_bench.answers.textual import choice_letter
from oar_bench.answers.tolerance import within
from oar_bench.answers.workers import WorkerPool
from oar_bench.identity import fingerprint

GRADER_VERSION = "2"  # raise it with every change that can move a verdict
MEMO_ENTRIES = 65_536


class _Outcome(NamedTuple):
    status: Status
    stage: str
    reason: str


class Grader:
    """Grades responses against golds; a context manager that owns its worker processes.

    `deadline` is in seconds per question to a symbolic worker, enforced by killing it (a worker's
    start, once per process, comes on top); everything before that stage is bounded by the limits
    of `limits.py`. Thread-safe; workers start at their first use.
    """

    def __init__(
        self,
        *,
        answer_type: AnswerType = "math",
        extract: ExtractMode = "auto",
        tolerance: float | None = None,
        deadline: float = 1.6,
        workers: int = 1,
        memo: bool = True,
    ) -> None:
        if answer_type not in ("math", "number", "choice", "exact"):
            raise ValueError(f"answer_type must be math, number, choice or exact: {answer_type!r}")
        if extract not in ("auto", "boxed", "gsm8k"):
            raise ValueError(f"extract must be auto, boxed or gsm8k: {extract!r}")
        if deadline <= 0:
            raise ValueError("deadline must be a positive number of seconds")
        self.answer_type: AnswerType = answer_type
        self.extract: ExtractMode = extract
        self.tolerance = tolerance
        self.deadline = deadline
        self.workers = max(1, workers)
        self.memo = memo
        self._memo: OrderedDict[tuple[str, str, float | None], _Outcome] = OrderedDict()
        self._lock = threading.Lock()
        self._pool = WorkerPool(self.workers)

    # Settings -------------------------------------------------------------------------------

    @property
    def fingerprint(self) -> str:
        """A hash of everything that can change a verdict: version, settings, libraries.

        >>> Grader().fingerprint == Grader(workers=4, memo=False).fingerprint
        True
        >>> Grader().fingerprint == Grader(tolerance=0.01).fingerprint
        False
        """
        settings = {
            "version": GRADER_VERSION,
            "answer_type": self.answer_type,
            "extract": self.extract,
            "tolerance": self.tolerance,
            "deadline": self.deadline,
            "libraries": {name: _version(name) for name in ("sympy", "math-verify", "mpmath")},
        }
        return fingerprint(settings)

    # Grading --------------------------------------------------------------------------------

    def grade(
        self,
        response: str,
        gold: str,
        *,
        truncated: bool = False,
        explain: bool = False,
        tolerance: float | None = None,
    ) -> Grade:
        """The verdict on a whole response.

        With `truncated` a response that ran into its length limit needs a complete answer: a
        closed box or tag, or a statement that something follows. `tolerance` is this gold's own,
        instead of the grader's.

        >>> with Grader() as grader:
        ...     grader.grade("It is 4.1", "4.2", tolerance=0.03).status
        'correct'
        """
        start = time.perf_counter()
        found, missing = self._extract(response, truncated)
        if found is None:
            outcome = _Outcome(missing, "extract", "the response has no complete answer")
            return _grade(outcome, None, start, explain)
        return _grade(self._judge(found, gold, tolerance), found, start, explain)

    def compare(self, answer: str, gold: str, *, explain: bool = False) -> Grade:
        """The verdict on a bare answer, without extraction.

        >>> with Grader() as grader:
        ...     grader.compare("x = 5", "5").status
        'correct'
        """
        start = time.perf_counter()
        found = Extraction(answer, 0, len(answer), 0, "given")
        if not answer.strip():
            outcome = _Outcome("no_answer", "extract", "the answer is empty")
            return _grade(outcome, found, start, explain)
        return _grade(self._judge(found, gold), found, start, explain)

    def grade_many(
        self,
        pairs: Iterable[tuple[str, str] | tuple[str, str, bool]],
        *,
        explain: bool = False,
    ) -> list[Grade]:
        """Grades in order of `(response, gold)` or `(response, gold, truncated)`.

        What the symbolic stage must decide is spread over the workers; the rest is done here.
        """
        items = list(pairs)
        results: list[Grade | None] = [None] * len(items)
        waiting: list[tuple[int, Extraction, str, float]] = []
        for place, item in enumerate(items):
            start = time.perf_counter()
            response, gold = item[0], item[1]
            found, missing = self._extract(response, len(item) > 2 and bool(item[2]))
            if found is None:
                outcome = _Outcome(missing, "extract", "the response has no complete answer")
            else:
                quick = self._quick(found, gold)
                if quick is None:
                    waiting.append((place, found, gold, time.perf_counter() - start))
                    continue
                outcome = quick
            results[place] = _grade(outcome, found, start, explain)

        def settle(task: tuple[int, Extraction, str, float]) -> None:
            place, found, gold, spent = task
            start = time.perf_counter() - spent
            results[place] = _grade(self._judge(found, gold), found, start, explain)

        if len(waiting) > 1 and self.workers > 1:
            with ThreadPoolExecutor(self.workers) as threads:
                list(threads.map(settle, waiting))
        else:
            for task in waiting:
                settle(task)
        return [result for result in results if result is not None]

    # Stages ---------------------------------------------------------------------------------

    def _extract(self, response: str, truncated: bool) -> tuple[Extraction | None, Status]:
        found = extract_answer(response, answer_type=self.answer_type, extract=self.extract)
        if found is not None and truncated and not found.complete:
            found = None
        return found, "truncated" if truncated else "no_answer"

    def _readings(self, found: Extraction) -> list[str]:
        """The answers that an extraction may stand for; any of them may match.

        Rule: boxes joined by "or" are one hedged answer; boxes joined by "and" or a comma are
        the last one or the list of them.
        """
        if found.how == "hedge":
            return [" or ".join(found.joined)]
        if found.joined:
            return [found.text, ", ".join(found.joined)]
        if found.how == "closing" and "=" in found.text and "," not in found.text:
            # rule: the closing formula of a text may end in the value that it computes
            return [found.text, found.text.rsplit("=", 1)[1]]
        return [found.text]

    def _quick(self, found: Extraction, gold: str) -> _Outcome | None:
        """The verdict if no worker is needed."""
        last: _Outcome | None = None
        for text in self._readings(found):
            outcome = self._outcome(text, gold, ask=False)
            if outcome is None or outcome.status == "correct":
                return outcome
            last = last or outcome
        return last

    def _judge(self, found: Extraction, gold: str, tolerance: float | None = None) -> _Outcome:
        outcomes = []
        for text in self._readings(found):
            outcome = self._outcome(text, gold, ask=True, own=tolerance)
            if outcome is not None:
                outcomes.append(outcome)
                if outcome.status == "correct":
                    return outcome
        return outcomes[0]

    def _outcome(
        self, text: str, gold: str, ask: bool, own: float | None = None
    ) -> _Outcome | None:
        tolerance = self.tolerance if own is None else own
        if not gold.strip():
            return _Outcome("gold_error", "limits", "the gold is empty")
        if self.answer_type == "exact":
            same = text.split() == gold.split()
            return _Outcome(_verdict(same), "exact", "compared as strings")
        if self.answer_type == "choice":
            return self._choice(text, gold)
        # Plain numbers are quicker to compare than to look up.
        fast = same_fast(text, gold)
        if fast is not None and (fast or tolerance is None):
            return _Outcome(_verdict(fast), "rational", "both are plain numbers")
        if not self.memo:
            return self._fresh(text, gold, ask, tolerance)
        key = (text, gold, tolerance)
        with self._lock:
            known = self._memo.get(key)
            if known is not None:
                self._memo.move_to_end(key)
        if known is not None:
            return known._replace(stage="memo")
        outcome = self._fresh(text, gold, ask, tolerance)
        if outcome is not None and outcome.status != "timeout":
            with self._lock:
                self._memo[key] = outcome
                if len(self._memo) > MEMO_ENTRIES:
                    self._memo.popitem(last=False)
        return outcome

    def _choice(self, text: str, gold: str) -> _Outcome:
        letter, wanted = choice_letter(strip_wrappers(text)), choice_letter(gold)
        if wanted is None:
            return _Outcome("gold_error", "text", "the gold is not a choice letter")
        return _Outcome(_verdict(letter == wanted), "text", f"{letter} against {wanted}")

    def _fresh(self, text: str, gold: str, ask: bool, tolerance: float | None) -> _Outcome | None:
        if self.answer_type == "number":
            number = first_number(text)
            if number is not None:
                text = number
        decision = decide(text, gold, self.memo)
        if decision.verdict is False and tolerance is not None and within(text, gold, tolerance):
            return _Outcome("correct", "tolerance", f"within {tolerance:g}")
        if decision.verdict is not None:
            return _Outcome(_verdict(decision.verdict), decision.stage, decision.reason)
        return self._symbolic(text, gold, decision) if ask else None

    def _symbolic(self, text: str, gold: str, decision: Decision) -> _Outcome:
        reply = self._pool.ask(clean(text), clean(gold), self.deadline)
        reason = f"{decision.reason}; the symbolic worker says {reply.status}"
        if reply.status == "correct":
            return _Outcome("correct", "symbolic", reason)
        if reply.status in ("timeout", "died"):
            return _Outcome("timeout", "symbolic", reason)
        if reply.status == "gold_error":
            return _Outcome("gold_error", "symbolic", reason)
        return _Outcome("wrong", "symbolic", reason)

    # Life time ------------------------------------------------------------------------------

    def close(self) -> None:
        """Ends the worker processes; the grader cannot be used for symbolic questions after."""
        self._pool.close()

    def __enter__(self) -> Grader:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_pool"):
            self._pool.close()


@lru_cache(maxsize=8)
def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "missing"


def _verdict(same: bool) -> Status:
    return "correct" if same else "wrong"


def _grade(outcome: _Outcome, found: Extraction | None, start: float, explain: bool) -> Grade:
    explanation: tuple[str, ...] = ()
    if explain:
        where = (
            f"extract: {found.how}, characters {found.start} to {found.end}: {found.text!r}"
            if found is not None
            else "extract: nothing found"
        )
        explanation = (where, f"{outcome.stage}: {outcome.reason}", f"status: {outcome.status}")
    milliseconds = (time.perf_counter() - start) * 1000
    return Grade(
        outcome.status,
        found.text if found is not None else None,
        found.how if found is not None else None,
        outcome.stage,
        milliseconds,
        explanation,
    )
