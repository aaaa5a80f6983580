"""Keyed draws: distributed as they should be, and functions of their key alone."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from oar_bench.keyed import derive, gumbel, normal, uniform

SEEDS = torch.tensor([derive("test", n) for n in range(200)])


def test_distributions_match_scipys():
    assert stats.kstest(uniform(SEEDS, 0, 100).flatten(), "uniform").pvalue > 0.001
    assert stats.kstest(normal(SEEDS, 1, 101).flatten(), "norm").pvalue > 0.001
    assert stats.kstest(gumbel(SEEDS, 2, 100).flatten(), "gumbel_r").pvalue > 0.001


def correlation(left: torch.Tensor, right: torch.Tensor) -> float:
    return abs(float(torch.corrcoef(torch.stack([left.flatten(), right.flatten()]))[0, 1]))


def test_neither_streams_nor_rows_nor_neighbours_correlate():
    a, b = uniform(SEEDS, 0, 100), uniform(SEEDS, 1, 100)
    for left, right in ((a, b), (a[:-1], a[1:]), (a[:, :-1], a[:, 1:])):
        assert correlation(left, right) < 0.03
    consecutive = uniform(torch.arange(200), 0, 100)  # keys that differ in their last bits
    assert stats.kstest(consecutive.flatten(), "uniform").pvalue > 0.001
    assert correlation(consecutive[:-1], consecutive[1:]) < 0.03


def test_gumbel_argmax_samples_the_softmax():
    logits = torch.tensor([0.0, 1.0, 2.0, -1.0]).double()
    seeds = torch.tensor([derive("argmax", n) for n in range(20_000)])
    drawn = (logits + gumbel(seeds, 0, 4)).argmax(1)
    expected = torch.softmax(logits, 0) * len(seeds)
    assert stats.chisquare(torch.bincount(drawn, minlength=4), expected).pvalue > 0.001


@given(st.lists(st.text() | st.integers(), min_size=1, max_size=4))
def test_seeds_are_in_range_and_tell_types_apart(key):
    assert 0 <= derive(*key) < 2**63
    assert derive(*map(str, key), "end") == derive(*map(str, key), "end")


def test_parts_of_a_key_do_not_run_together():
    assert derive("a", "bc") != derive("ab", "c")
    assert derive(1) != derive("1")
