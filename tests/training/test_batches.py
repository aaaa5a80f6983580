"""Micro-batches by a budget of tokens."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from oar_bench.training.batches import filled_columns, micro_batches
from oar_bench.training.model import pad_batch


@given(
    st.lists(st.integers(1, 50), min_size=1, max_size=30), st.integers(1, 8), st.integers(1, 120)
)
def test_each_row_goes_once_within_the_budget(lengths, rows, tokens):
    table = torch.tensor(lengths)
    chosen = torch.arange(0, len(lengths), 2)
    parts = micro_batches(chosen, table, most_rows=rows, most_tokens=tokens)
    assert sorted(i for part in parts for i in part.tolist()) == chosen.tolist()
    longest = [int(table[part].max()) for part in parts]
    assert longest == sorted(longest, reverse=True)
    for part in parts:
        assert len(part) <= rows
        assert len(part) == 1 or len(part) * int(table[part].max()) <= tokens


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(0, 6)), min_size=1, max_size=5))
def test_padding_that_no_row_needs_is_cut(shapes):
    prompts, responses = ([[1] * n for n in column] for column in zip(*shapes, strict=True))
    _, attention, _ = pad_batch(prompts, responses, 0)
    shortest = torch.tensor([min(range(len(shapes)), key=lambda i: sum(shapes[i]))])
    columns = filled_columns(attention[shortest])
    assert columns.stop - columns.start == sum(shapes[int(shortest)])
    assert bool(attention[shortest, columns].all())
