"""Files of responses that `oar-bench score` reads, whoever wrote them.

ours        samples.jsonl of `oar-bench generate`: problem, sample, response, gold
lm-eval     `--log_samples` files: doc_id, doc, target, resps (one item for each response)
corpus      cases with known verdicts: gold, expected, answer or model_output (or *_parts)
bare        any JSON lines with a response and a gold, their fields named by options
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from oar_bench.answers.corpus import parse_case
from oar_bench.answers.extract import AnswerType
from oar_bench.errors import InputError
from oar_bench.records import read_jsonl


@dataclass(frozen=True)
class Item:
    """One response to grade: row number `row` of the file (1-based), named `id`."""

    row: int
    id: str
    text: str
    gold: str
    answer_type: AnswerType | None = None
    """What the row itself says that its task asks for."""
    bare: bool = False
    """`text` is an answer already, with nothing to extract."""
    truncated: bool = False
    expected: bool | None = None
    kind: str = ""
    debatable: bool = False


@dataclass(frozen=True)
class Fields:
    """Names of the fields of a bare file."""

    response: str = "response"
    gold: str = "gold"
    id: str = "id"


Reader = Callable[[int, Mapping[str, Any], Fields], list[Item]]


def _ours(row: int, content: Mapping[str, Any], fields: Fields) -> list[Item]:
    return [
        Item(
            row, f"{content['problem']}/{content['sample']}", str(content["response"]),
            str(content["gold"]), truncated=content.get("finish_reason") == "length",
        )
    ]  # fmt: skip


def final_answer(target: str) -> str:
    """The gold in a target of lm-eval; of a worked solution the answer behind `####`.

    >>> final_answer("2 + 2 = 4\\n#### 4"), final_answer(" 4")
    ('4', '4')
    """
    return target.rpartition("####")[2].strip()


def _lm_eval(row: int, content: Mapping[str, Any], fields: Fields) -> list[Item]:
    """The gold is lm-eval's target."""
    gold = final_answer(str(content["target"]))
    responses = [text for answers in content["resps"] for text in answers]
    name = str(content["doc_id"])
    return [
        Item(row, name if len(responses) == 1 else f"{name}/{k}", str(text), gold)
        for k, text in enumerate(responses)
    ]


def _corpus(row: int, content: Mapping[str, Any], fields: Fields) -> list[Item]:
    case = parse_case(content)
    return [
        Item(
            row, case.id, case.text, case.gold, case.answer_type, bare=case.level == "equiv",
            expected=case.expected, kind=case.kind, debatable=case.debatable,
        )
    ]  # fmt: skip


def _bare(row: int, content: Mapping[str, Any], fields: Fields) -> list[Item]:
    expected = content.get("expected")
    kind = content.get("answer_type")
    return [
        Item(
            row, str(content.get(fields.id, row)), str(content[fields.response]),
            str(content[fields.gold]), cast(AnswerType, kind) if kind else None,
            truncated=content.get("finish_reason") == "length",
            expected=expected if isinstance(expected, bool) else None,
            kind=str(content.get("kind", "")), debatable=content.get("debatable") is True,
        )
    ]  # fmt: skip


_CORPUS_TEXTS = {"answer", "answer_parts", "model_output", "model_output_parts"}


def reader_of(content: Mapping[str, Any]) -> Reader:
    """The reader for a file whose first row is `content`.

    >>> reader_of({"doc_id": 0, "doc": {}, "target": "4", "resps": [["4"]]}).__name__
    '_lm_eval'
    >>> reader_of({"response": "4", "gold": "4"}).__name__
    '_bare'
    """
    keys = set(content)
    if {"doc_id", "target", "resps"} <= keys:
        return _lm_eval
    if {"problem", "sample", "response", "gold"} <= keys:
        return _ours
    if {"gold", "expected"} <= keys and keys & _CORPUS_TEXTS:
        return _corpus
    return _bare


def read_items(path: Path, fields: Fields) -> Iterator[Item]:
    """The responses of a file, in order.

    Raises:
        InputError: no such file, an empty one, or a row without the fields of its format.
    """
    if not path.exists():
        raise InputError("no such file", str(path))
    reader: Reader | None = None
    for row, content in enumerate(read_jsonl(path), start=1):
        reader = reader or reader_of(content)
        try:
            yield from reader(row, content, fields)
        except (KeyError, TypeError, ValueError) as error:
            what = f"no field {error}" if isinstance(error, KeyError) else str(error)
            raise InputError(
                f"row {row}: {what}; it has {', '.join(sorted(map(str, content)))[:200]}",
                str(path), "name the fields by --response-field and --gold-field",
            ) from error  # fmt: skip
    if reader is None:
        raise InputError("there is no row in this file", str(path))
