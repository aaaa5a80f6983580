"""The stage `oar-bench credit fidelity`: every method against exact OAR-P, response by response.

The problem is the unit: responses to one problem are averaged before anything else, and an
interval is over problems. What a method can't rank is left out and counted, never set to 0.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from oar_bench.config import IMPORTANCE_METHODS, CreditSettings
from oar_bench.credit.fidelity import SHARES, answer_curves, is_ranked, spearman, top_overlap
from oar_bench.credit.methods import DRAWN, CreditBatch, importance, replacement_of
from oar_bench.engines.hf import HFEngine, pad_id
from oar_bench.engines.tokens import response_text
from oar_bench.errors import InputError, nearest
from oar_bench.evaluation.summary import finite
from oar_bench.identity import environment, fingerprint, fingerprint_checkpoint
from oar_bench.integrations.saved import Response
from oar_bench.keyed import derive
from oar_bench.overhead.phases import PhaseTimer
from oar_bench.records import SCHEMA
from oar_bench.reporting.credit_show import Console
from oar_bench.reporting.fidelity_source import Answers, Source, gather
from oar_bench.reporting.fidelity_table import summary
from oar_bench.training.model import pad_batch
from oar_bench.training.rollout import probed_batch

EXACT, FLOOR = "oar-p", "position"
OTHER = "oar-p, other token"
CHUNK = 64  # responses that are scored together


def rows_of(methods: Sequence[str]) -> list[str]:
    """The methods of the table: exact OAR-P first, then those asked for; position always.

    >>> rows_of(["oar-d", "oar-g"])
    ['oar-p', 'oar-d', 'oar-g', 'position']

    Raises:
        InputError: a method that gives no importance.
    """
    for method in methods:
        if method not in IMPORTANCE_METHODS:
            raise InputError(
                f"no importance is called {method!r}", "--method",
                nearest(method, list(IMPORTANCE_METHODS)),
            )  # fmt: skip
    return list(dict.fromkeys([EXACT, *methods, FLOOR]))


def other_token(word: str) -> int | None:
    """The id that `--replacement-other` names; None for `frequent`.

    Raises:
        InputError: neither `frequent` nor a number.
    """
    if word == "frequent":
        return None
    if not word.isascii() or not word.isdigit():
        raise InputError(
            f"{word!r} is no token id", "--replacement-other", "give a number, or frequent"
        )
    return int(word)


def fidelity(
    model: Path, source: Source, methods: Sequence[str], settings: CreditSettings, other: str,
    console: Console,
) -> dict[str, Any]:  # fmt: skip
    """Agreement of each method with exact OAR-P, and its deletion and insertion curves.

    Args:
        model: folder of the checkpoint whose answers are watched.
        source: which responses.
        methods: importances by their names.
        settings: a recipe's credit section.
        other: the second replacement token, see `other_token`.

    Returns:
        JSON-ready; `rows` as `oar_bench.reporting.fidelity_table.summary` makes them, `responses`
        with the numbers of each one, and what they were made of.

    Raises:
        InputError: an unknown method or token, no such checkpoint, task or file, or no response
            with an answer and two tokens to score.
    """
    source.check()
    names, other_id = rows_of(methods), other_token(other)
    engine = HFEngine.load(model)
    with console.stage("responses", (source.problems or 1) * source.samples) as tick:
        answers = gather(source, model, engine, lambda done: tick(done, ""))
    tokenizer = engine.tokenizer
    pad = pad_id(tokenizer)
    used, left_out = _usable(engine, answers, settings)
    if not used:
        raise InputError(
            "no response states an answer that two tokens of reasoning precede"
            if left_out["no_answer"] < len(answers.responses) else "no response states an answer",
            answers.about, "use more problems or samples, another --answer-type, or --gold",
        )  # fmt: skip
    first = replacement_of(settings, pad)
    if other_id is None:
        other_id = _frequent(engine, used, answers, settings, first)
    _check_ids(engine, first, other_id)
    measured = _Measured(engine, answers, settings, other_id)
    parts = [used[i : i + CHUNK] for i in range(0, len(used), CHUNK)]
    with console.stage("fidelity", len(parts) * (len(names) + 1)) as tick:
        done = 0
        for part in parts:
            for name in measured.add(part, names):
                done += 1
                tick(done, name)
    prints = {
        "model": fingerprint_checkpoint(model),
        "credit": fingerprint(settings.model_dump(mode="json")),
        **answers.fingerprints,
    }
    tokens = {"replacement": first, "other": other_id}
    return {
        "schema": SCHEMA, "kind": "fidelity", "model": str(model), "source": answers.about,
        "answer_type": answers.answer_type,
        "counts": {"responses": len(answers.responses), "used": len(used), **left_out,
                   "problems": len({r.name["problem"] for r in used})},
        "tokens": {name: {"id": i, "token": str(tokenizer.convert_ids_to_tokens(i))}
                   for name, i in tokens.items()},
        "shares": list(SHARES),
        "rows": summary([*names, OTHER], measured.records, measured.seconds),
        "responses": measured.records,
        "settings": settings.model_dump(mode="json"), "fingerprints": prints,
        "environment": {**environment(), "threads": torch.get_num_threads(),
                        "device": str(engine.model.device)},
    }  # fmt: skip


def _batch(engine: HFEngine, part: Sequence[Response], answers: Answers) -> CreditBatch:
    """What credit needs to know of some responses."""
    ids = [response.response_ids for response in part]
    device = engine.model.device
    tensors = pad_batch([r.prompt_ids for r in part], ids, pad_id(engine.tokenizer))
    padded = tensors[0].to(device), tensors[1].to(device), tensors[2].to(device)
    texts = [response_text(engine.tokenizer, own) for own in ids]
    return probed_batch(
        engine.tokenizer, texts, ids, padded, [r.seed for r in part], answers.answer_type
    )


def _usable(
    engine: HFEngine, answers: Answers, settings: CreditSettings
) -> tuple[list[Response], dict[str, int]]:
    """The responses with an answer and at least two tokens to rank, and why others are left out."""
    used, left_out = [], {"no_answer": 0, "too_short": 0}
    for response in answers.responses:
        if not response.response_ids:
            left_out["no_answer"] += 1
            continue
        batch = _batch(engine, [response], answers)
        if not bool(batch.probe.found[0]):
            left_out["no_answer"] += 1
        elif int(batch.weighted(settings).sum()) < 2:
            left_out["too_short"] += 1
        else:
            used.append(response)
    return used, left_out


def _frequent(
    engine: HFEngine,
    used: Sequence[Response],
    answers: Answers,
    settings: CreditSettings,
    not_id: int,
) -> int:
    """The most frequent of the scored tokens that isn't `not_id`; of equal ones the lowest id."""
    counts: Counter[int] = Counter()
    for response in used:
        batch = _batch(engine, [response], answers)
        counts.update(batch.input_ids[batch.weighted(settings)].tolist())
    counts.pop(not_id, None)
    if not counts:
        raise InputError(
            "no token but the replacement occurs", "--replacement-other", "give a token's id"
        )
    return min(counts, key=lambda i: (-counts[i], i))


def _check_ids(engine: HFEngine, first: int, other: int) -> None:
    vocabulary = int(engine.model.get_input_embeddings().weight.shape[0])  # type: ignore[index]
    for name, value in (("credit.replacement", first), ("--replacement-other", other)):
        if value >= vocabulary:
            raise InputError(
                f"{value} is no token of this model", name, f"use a number below {vocabulary}"
            )
    if first == other:
        raise InputError(
            f"{other} is the replacement itself", "--replacement-other", "give another token's id"
        )


@dataclass
class _Measured:
    """What was measured so far: a record a response, and the seconds of each method."""

    engine: HFEngine
    answers: Answers
    settings: CreditSettings
    other: int

    def __post_init__(self) -> None:
        self.records: list[dict[str, Any]] = []
        self.seconds: Counter[str] = Counter()
        self.pad = pad_id(self.engine.tokenizer)

    def add(self, part: Sequence[Response], names: Sequence[str]) -> Any:
        """Measure some responses; yields each row's name once it is done."""
        batch = _batch(self.engine, part, self.answers)
        if not self.records:  # the first pass of a model is slower than the later ones
            importance(EXACT, self.engine.model, batch.rows(torch.tensor([0])), self.settings,
                       self.pad)  # fmt: skip
        records = [
            {**response.name, "tokens": int(count), "methods": {}}
            for response, count in zip(part, batch.weighted(self.settings).sum(1), strict=True)
        ]
        exact = self._timed(EXACT, EXACT, batch, self.settings)
        for name in names:
            scores = exact if name == EXACT else self._timed(name, name, batch, self.settings)
            second = None
            if name in DRAWN:
                second = self._scores(name, _redrawn(batch), self.settings)
            self._record(name, records, batch, exact, scores, second)
            yield name
        with_other = self.settings.model_copy(update={"replacement": self.other})
        scores = self._timed(OTHER, EXACT, batch, with_other)
        self._record(OTHER, records, batch, exact, scores, None)
        self.records += records
        yield OTHER

    def _scores(
        self, method: str, batch: CreditBatch, settings: CreditSettings
    ) -> torch.Tensor:  # fmt: skip
        return importance(method, self.engine.model, batch, settings, self.pad)

    def _timed(
        self, name: str, method: str, batch: CreditBatch, settings: CreditSettings
    ) -> torch.Tensor:
        timer = PhaseTimer(0)
        with timer.phase(name):
            scores = self._scores(method, batch, settings)
        self.seconds[name] += timer.rows[0]["seconds"]
        return scores

    def _record(
        self, name: str, records: list[dict[str, Any]], batch: CreditBatch, exact: torch.Tensor,
        scores: torch.Tensor, second: torch.Tensor | None,
    ) -> None:  # fmt: skip
        """Enter one method's numbers into the records of the batch's responses."""
        marked, s = batch.weighted(self.settings), self.settings
        deletion, insertion = answer_curves(
            self.engine.model, batch.input_ids, batch.attention_mask, marked, batch.probe.answer,
            scores, replacement=replacement_of(s, self.pad), pfinal=s.pfinal,
            memory=s.memory_mib * 2**20,
        )  # fmt: skip
        for row, record in enumerate(records):
            mine, true = scores[row, marked[row]], exact[row, marked[row]]
            ranked = is_ranked(mine)  # the curves of an order that is none would mean nothing
            record["methods"][name] = {
                "spearman": finite(spearman(true, mine)),
                "top": finite(top_overlap(true, mine)),
                "draws": None if second is None else finite(
                    spearman(mine, second[row, marked[row]])
                ),
                "deletion": _curve(deletion[row]) if ranked else None,
                "insertion": _curve(insertion[row]) if ranked else None,
            }  # fmt: skip


def _curve(points: torch.Tensor) -> list[float] | None:
    values: list[float] = points.tolist()
    return values if all(map(math.isfinite, values)) else None


def _redrawn(batch: CreditBatch) -> CreditBatch:
    """The batch under the keys of a second draw."""
    keys = [derive("second draw", seed) for seed in batch.seeds.tolist()]
    return replace(batch, seeds=torch.tensor(keys, device=batch.seeds.device))
