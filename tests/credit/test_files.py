"""Saved importances and weights: what is written is read back, and never for other tokens."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from oar_bench.credit.assign import Credit
from oar_bench.credit.files import credit_rows, ids_sha256, load_credit, save_credit
from oar_bench.errors import InputError

MASK = torch.tensor([[False, True, True, True], [False, False, True, True]])
RESPONSES = [[5, 6, 1], [7, 1]]
NAMES = [{"problem": "a", "sample": 0}, {"problem": "a", "sample": 1}]


def credit() -> Credit:
    importance = torch.tensor([[9.0, 0.0, 0.1, 3.0], [9.0, 9.0, 1e-30, math.inf]])
    weights = torch.tensor([[1.0, 0.1, 2.0, 0.9], [1.0, 1.0, 1.0, 1.0]])
    return Credit(importance, weights)


def saved(path: Path) -> list[dict]:
    rows = credit_rows(credit(), MASK, RESPONSES, NAMES, method="oar-p")
    save_credit(path, rows)
    return rows


def test_a_row_holds_plain_numbers(tmp_path):
    saved(tmp_path / "credit.jsonl")
    first, second = map(json.loads, (tmp_path / "credit.jsonl").read_text().splitlines())
    assert first == {
        "schema": 1, "problem": "a", "sample": 0, "method": "oar-p", "tokens": 3,
        # printf '5,6,1' | sha256sum
        "token_ids_sha256": "07f4e40d8f32a03e753b129956006f3c363e7b849f4239e443267e5e1252a123",
        "importance": [0.0, 0.1, 3.0], "weights": [0.1, 2.0, 0.9],
    }  # fmt: skip
    assert second["importance"] == [1e-30, None]


def test_a_batch_comes_back(tmp_path):
    path = tmp_path / "credit.jsonl"
    saved(path)
    # In another order, under other padding.
    mask = torch.tensor([[True, True, False, False], [True, True, True, False]])
    back = load_credit(path, mask, RESPONSES[::-1], NAMES[::-1])
    assert back.weights.tolist() == [
        [1, 1, 1, 1], [float(torch.tensor(x)) for x in (0.1, 2.0, 0.9, 1.0)],
    ]  # fmt: skip
    assert back.importance[1].tolist() == [0.0, float(torch.tensor(0.1)), 3.0, 0.0]
    assert float(back.importance[0, 0]) == float(torch.tensor(1e-30))
    assert math.isnan(float(back.importance[0, 1]))


@given(
    st.lists(st.floats(0, width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=9)
)
def test_every_float32_survives(tmp_path_factory, values):
    path = tmp_path_factory.mktemp("credit") / "credit.jsonl"
    exact = torch.tensor([values])
    mask, ids = torch.ones_like(exact).bool(), [list(range(len(values)))]
    save_credit(path, credit_rows(Credit(exact, exact), mask, ids, NAMES[:1]))
    back = load_credit(path, mask, ids, NAMES[:1])
    assert torch.equal(back.weights, exact)
    assert torch.equal(back.importance, exact)


def refused(path: Path, match: str, responses=RESPONSES, names=NAMES) -> None:
    with pytest.raises(InputError, match=match):
        load_credit(path, MASK, responses, names)


def test_other_token_ids_are_refused(tmp_path):
    saved(tmp_path / "c")
    refused(tmp_path / "c", "problem a, sample 0 are of other token ids", [[5, 8, 1], [7, 1]])
    refused(tmp_path / "c", r"\(2 tokens, the batch has 3\)", [[5, 6, 1], [7, 7, 1]])
    # 5,61 and 56,1 are other ids, though their digits are the same
    assert ids_sha256([5, 61]) != ids_sha256([56, 1])


def test_missing_and_double_rows_are_refused(tmp_path):
    rows = saved(tmp_path / "c")
    refused(tmp_path / "absent", "no such file")
    save_credit(tmp_path / "c", rows[:1])
    refused(tmp_path / "c", "no row for problem a, sample 1")
    save_credit(tmp_path / "c", [*rows, rows[1]])
    refused(tmp_path / "c", "two rows for problem a, sample 1")


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"weights": [1.0, 2.0]}, "weights is no list of 3 numbers"),
        ({"weights": [1.0, -0.5, 1.0]}, "weights has what is no number >= 0"),
        ({"weights": [1.0, None, 1.0]}, "weights has what is no number >= 0"),
        ({"importance": "high"}, "importance is no list of 3 numbers"),
        ({"importance": [0, "1", 2]}, "importance has what is no number >= 0"),
    ],
)
def test_damaged_rows_are_refused(tmp_path, change, match):
    rows = saved(tmp_path / "c")
    save_credit(tmp_path / "c", [{**rows[0], **change}, rows[1]])
    refused(tmp_path / "c", match)


def test_steps_keep_a_problem_apart(tmp_path):
    rows = []
    for step in (1, 2):
        weights = torch.full((2, 4), float(step))
        names = [{"step": step, **name} for name in NAMES]
        rows += credit_rows(Credit(weights, weights), MASK, RESPONSES, names)
    save_credit(tmp_path / "c", rows)
    back = load_credit(tmp_path / "c", MASK, RESPONSES, [{"step": 2, **name} for name in NAMES])
    assert back.weights[MASK].tolist() == [2.0] * 5
