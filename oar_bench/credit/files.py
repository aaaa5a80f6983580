"""Importances and weights in a file, one response a line, for any trainer to read.

    {"schema": 1, "step": 3, "problem": "arithmetic-17", "sample": 0, "method": "oar-p",
     "tokens": 4, "token_ids_sha256": "9b2d...", "importance": [0.0, 0.02, 0.7, 0.0],
     "weights": [0.1, 0.9, 2.0, 1.0]}

A list has one number for each response token, in the order in which they were sampled, end token
included; no padding. Numbers are float32 in their shortest decimal form, which reads back to the
same float32; an importance that isn't finite is null. `step` is there only in files of a training
run. `token_ids_sha256` is SHA-256 over the ids in decimal, joined by commas: a reader knows by it
that the weights are those of its own tokens, and not of another tokenisation of the same text.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from oar_bench.credit.assign import Credit
from oar_bench.errors import InputError
from oar_bench.records import SCHEMA, dumps, read_jsonl, write_text

Name = Mapping[str, Any]
"""What names a response: `problem`, `sample`, and `step` in a training run."""

NAME_FIELDS = ("step", "problem", "sample")


def ids_sha256(ids: Sequence[int]) -> str:
    """SHA-256, in hex, of token ids in decimal, joined by commas.

    >>> import hashlib
    >>> ids_sha256([5, 12]) == hashlib.sha256(b"5,12").hexdigest()
    True
    """
    return hashlib.sha256(",".join(map(str, ids)).encode()).hexdigest()


def name_of(row: Name) -> tuple[Any, ...]:
    """The key of a row: step (None outside training), problem, sample.

    >>> name_of({"problem": "a", "sample": 2, "weights": []})
    (None, 'a', 2)
    """
    return tuple(row.get(field) for field in NAME_FIELDS)


def credit_rows(
    credit: Credit,
    response_mask: torch.Tensor,
    responses: Sequence[Sequence[int]],
    names: Sequence[Name],
    **common: Any,
) -> list[dict[str, Any]]:
    """The rows of a batch.

    Args:
        credit: importances and weights (B, S).
        response_mask: (B, S) bool, as many True in a row as its response has tokens.
        responses: (B,) the sampled ids.
        names: (B,) what names each response.
        common: further fields of every row, such as `method`.
    """
    rows = []
    for i, (ids, name) in enumerate(zip(responses, names, strict=True)):
        own = response_mask[i]
        rows.append({
            "schema": SCHEMA, **{field: name[field] for field in NAME_FIELDS if field in name},
            **common, "tokens": len(ids), "token_ids_sha256": ids_sha256(ids),
            "importance": _numbers(credit.importance[i][own]),
            "weights": _numbers(credit.weights[i][own]),
        })  # fmt: skip
    return rows


def _numbers(values: torch.Tensor) -> list[float | None]:
    """Float32 values as the shortest decimals that read back to them; None where not finite."""
    exact = values.detach().float().cpu().numpy()
    return [float(str(x)) if abs(x) < float("inf") else None for x in exact]


def save_credit(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write a whole file of rows at once, in place of what was there."""
    write_text(path, "".join(dumps(row) + "\n" for row in rows))


def load_credit(
    path: Path,
    response_mask: torch.Tensor,
    responses: Sequence[Sequence[int]],
    names: Sequence[Name],
) -> Credit:
    """The credit of a batch from a file; rows of other responses in the file are left alone.

    Args:
        path: a file of such rows; each response of the batch must have one.
        response_mask, responses, names: as for `credit_rows`.

    Returns:
        (B, S) float32 importances, 0 outside the responses, and weights, 1 there, on the device
        of `response_mask`.

    Raises:
        InputError: no such file, a response without a row or with two, a row whose token ids are
            not the batch's, or whose lists don't fit them.
    """
    if not path.is_file():
        raise InputError("no such file", str(path))
    wanted = {name_of(name): i for i, name in enumerate(names)}
    found: dict[int, dict[str, Any]] = {}
    for row in read_jsonl(path):
        i = wanted.get(name_of(row))
        if i is None:
            continue
        if i in found:
            raise InputError(f"two rows for {_told(names[i])}", str(path), "remove one of them")
        check_row(row, responses[i], path)
        found[i] = row
    importance = torch.zeros(response_mask.shape, device=response_mask.device)
    weights = torch.ones_like(importance)
    for i, name in enumerate(names):
        if i not in found:
            raise InputError(f"no row for {_told(name)}", str(path))
        for target, field in ((importance, "importance"), (weights, "weights")):
            values = [float("nan") if x is None else x for x in found[i][field]]
            target[i, response_mask[i]] = torch.tensor(values, device=target.device)
    return Credit(importance, weights)


def check_row(row: Mapping[str, Any], ids: Sequence[int], path: Path) -> None:
    """Refuse a row that doesn't belong to the token ids of its response, or is damaged."""
    if row.get("token_ids_sha256") != ids_sha256(ids):
        raise InputError(
            f"the weights of {_told(row)} are of other token ids ({row.get('tokens')} tokens, "
            f"the batch has {len(ids)})", str(path), "make the file again from these responses",
        )  # fmt: skip
    for field in ("importance", "weights"):
        values = row.get(field)
        if not isinstance(values, list) or len(values) != len(ids):
            raise InputError(f"{_told(row)}: {field} is no list of {len(ids)} numbers", str(path))
        null = field == "importance"  # for one that isn't finite
        if not all(null if x is None else isinstance(x, int | float) and x >= 0 for x in values):
            raise InputError(f"{_told(row)}: {field} has what is no number >= 0", str(path))


def _told(name: Name) -> str:
    return ", ".join(
        f"{field} {name[field]}" for field in NAME_FIELDS if name.get(field) is not None
    )
