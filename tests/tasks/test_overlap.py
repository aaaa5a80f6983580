"""Overlap of training and test problems, against hand-made texts and a plain loop."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from oar_bench.tasks.overlap import HeldOut, ngrams, normal_text, words

THIRTEEN = "one two three four five six seven eight nine ten eleven twelve thirteen"


def test_normal_text_keeps_signs_and_numbers_apart():
    same = ("What is $2+3$?", "what is 2 + 3", "WHAT IS\n\\left 2\\,+\\;3 .", "What is ２＋３?")
    assert len({normal_text(text) for text in same}) == 1
    other = ("What is 2 - 3?", "What is 23?", "What is 2 + 3!?x", "What is 2 + 3.5?")
    assert len({normal_text(text) for text in other} | {normal_text(same[0])}) == 5
    assert normal_text("") == normal_text(" ?") == ""
    assert normal_text("\\leftarrow") != normal_text("arrow")


def test_thirteen_words_overlap_and_twelve_do_not():
    index = HeldOut({"t": {"p": f"Zero {THIRTEEN} fourteen."}}, 13)
    [match] = index.find("r", f"Quite another start: {THIRTEEN.upper()}, and another end.")
    assert (match.task, match.problem, match.exact, match.shared) == ("t", "p", False, 1)
    assert match.share == 1 / 3  # 15 words have three runs of 13
    twelve = " ".join(THIRTEEN.split()[:12])
    assert index.find("r", f"Quite another start: {twelve} and another end.") == []
    assert index.find("r", " ".join(reversed(THIRTEEN.split()))) == []


def test_a_short_problem_is_found_when_it_is_equal_and_is_counted():
    index = HeldOut({"t": {"p": "What is $2+3$?", "q": THIRTEEN}, "u": {"p": THIRTEEN}}, 13)
    [match] = index.find("r", "what is 2 + 3")
    assert (match.problem, match.exact, match.shared, match.share) == ("p", True, 0, 1.0)
    both = index.find("s", THIRTEEN)
    assert [(m.task, m.problem, m.exact, m.shared) for m in both] == [
        ("t", "q", True, 1), ("u", "p", True, 1),
    ]  # fmt: skip
    report = index.report([match, *both], 40, dropped=False)
    assert report["tasks"] == {
        "t": {"problems": 2, "short": 1, "exact": 2, "ngram": 1, "rows_found": 2,
              "problems_found": 2},
        "u": {"problems": 1, "short": 0, "exact": 1, "ngram": 1, "rows_found": 1,
              "problems_found": 1},
    }  # fmt: skip
    assert (report["rows"], report["rows_found"], report["dropped"]) == (40, 2, False)
    assert report["matches"][0] == {
        "id": "r", "task": "t", "problem": "p", "exact": True, "shared": 0, "share": 1.0
    }  # fmt: skip


few = st.lists(st.sampled_from(["a", "b", "c"]), max_size=9).map(" ".join)


@given(training=few, tests=st.lists(few, min_size=1, max_size=4), n=st.integers(1, 4))
def test_the_index_finds_what_a_plain_loop_finds(training, tests, n):
    index = HeldOut({"t": {str(i): text for i, text in enumerate(tests)}}, n)
    found = {m.problem: (m.exact, m.shared) for m in index.find("r", training)}
    mine = training.split()
    wanted = {}
    for i, text in enumerate(tests):
        other = text.split()
        runs = {tuple(other[j : j + n]) for j in range(len(other) - n + 1)}
        shared = sum(run in [tuple(mine[j : j + n]) for j in range(len(mine))] for run in runs)
        if shared or mine == other:
            wanted[str(i)] = (mine == other, shared)
    assert found == wanted


@given(st.text())
def test_any_text_has_words_and_a_normal_form(text):
    bare = text.replace("\\", "")
    assert normal_text(f"\n  {bare} $ ") == normal_text(bare)
    assert all(words(text))
    assert len(ngrams(text, 2)) <= max(0, len(words(text)) - 1)
