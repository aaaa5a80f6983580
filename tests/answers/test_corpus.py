"""Verdicts on the case files: thresholds overall and by kind, false positives counted."""

from __future__ import annotations

from pathlib import Path

import pytest

from oar_bench.answers.corpus import (
    CorpusGrader,
    Report,
    expand,
    format_report,
    parse_case,
    read_cases,
    tally,
)

CASES = Path(__file__).parent / "cases"


def run(name: str) -> Report:
    with CorpusGrader() as grader:
        return tally((case, grader.grade(case).correct) for case in read_cases(CASES / name))


@pytest.fixture(scope="module")
def public() -> Report:
    return run("public.jsonl")


def test_public_overall(public: Report) -> None:
    assert public.overall.cases > 950
    assert public.overall.accuracy >= 0.99, format_report(public)
    assert len(public.overall.false_positives) <= 1, public.overall.false_positives


def test_public_by_kind(public: Report) -> None:
    low = {
        kind: count.false_positives + count.false_negatives
        for kind, count in public.kinds.items()
        if count.cases >= 20 and count.accuracy < 0.98
    }
    assert not low


@pytest.mark.parametrize(
    ("name", "cases"), [("own.jsonl", 1600), ("fresh.jsonl", 1200), ("fresh2.jsonl", 900)]
)
def test_own_variants(name: str, cases: int) -> None:
    report = run(name)
    assert report.overall.cases > cases
    assert not report.overall.false_positives
    assert not report.overall.false_negatives


def test_no_answer_was_executed(public: Report) -> None:
    assert not list(Path.cwd().glob("oarpwned*"))


def test_a_case_without_an_answer_is_named() -> None:
    with pytest.raises(ValueError, match="case a-1: no field answer"):
        parse_case({"id": "a-1", "level": "equiv", "gold": "1", "expected": True})


def test_a_broken_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "cases.jsonl"
    path.write_text('{"id": "a", "gold": "1", "answer": "1", "expected": true}\nnonsense\n')
    with pytest.raises(ValueError, match="line 2"):
        list(read_cases(path))


def test_expand_refuses_unreasonable_lengths() -> None:
    with pytest.raises(ValueError, match="characters"):
        expand([["x", 10**9]])
