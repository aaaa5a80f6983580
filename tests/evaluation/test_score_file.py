"""`oar-bench score FILE`: every format, resume, other graders, expectations and differences."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import pytest

from oar_bench.errors import InputError
from oar_bench.evaluation.formats import Fields, read_items
from oar_bench.evaluation.score_file import Graders, changes, expectations, score_file
from oar_bench.records import read_jsonl

BARE = [
    {"id": "a", "response": "so it is \\boxed{\\frac12}", "gold": "0.5", "expected": True},
    {"id": "b", "response": "The answer is 7.", "gold": "8", "expected": False},
    {"id": "c", "response": "I do not know", "gold": "8", "expected": False},
    {"id": "d", "response": "it must be \\boxed{3", "gold": "3", "finish_reason": "length"},
    {"id": "e", "response": "\\boxed{2}", "gold": "2", "expected": False, "debatable": True},
]


def write(path: Path, rows: list[dict]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def score(path: Path, out: Path, **settings) -> list[dict]:
    with Graders(**settings) as graders:
        score_file(path, out, graders)
    return list(read_jsonl(out))


def test_a_bare_file(tmp_path):
    rows = score(write(tmp_path / "x.jsonl", BARE), tmp_path / "s.jsonl")
    assert [(r["id"], r["row"], r["status"]) for r in rows] == [
        ("a", 1, "correct"), ("b", 2, "wrong"), ("c", 3, "no_answer"), ("d", 4, "truncated"),
        ("e", 5, "correct"),
    ]  # fmt: skip
    assert rows[0]["extracted"] == "\\frac12"
    assert (rows[0]["how"], rows[1]["how"]) == ("boxed", "statement")
    assert all(r["milliseconds"] >= 0 and r["stage"] for r in rows)


def test_other_field_names(tmp_path):
    path = write(tmp_path / "x.jsonl", [{"out": "\\boxed{4}", "want": "4", "n": 9}])
    with Graders() as graders:
        score_file(path, tmp_path / "s.jsonl", graders, Fields("out", "want", "n"))
    [row] = read_jsonl(tmp_path / "s.jsonl")
    assert (row["id"], row["correct"]) == ("9", True)
    with pytest.raises(InputError, match=r"row 1: no field 'response'; it has n, out, want"):
        list(read_items(path, Fields()))


def test_lm_evals_samples(tmp_path):
    rows = [
        {"doc_id": 0, "doc": {}, "target": "1 + 1 = 2\n#### 2", "resps": [["#### 2"]]},
        {"doc_id": 1, "doc": {}, "target": "5", "resps": [["The answer is 5."], ["It is 6."]]},
    ]
    scores = score(write(tmp_path / "x.jsonl", rows), tmp_path / "s.jsonl", answer_type="number")
    assert [(r["id"], r["correct"]) for r in scores] == [
        ("0", True), ("1/0", True), ("1/1", False),
    ]  # fmt: skip


def test_our_samples_and_the_corpus_format(tmp_path):
    ours = [
        {"problem": "p", "sample": k, "response": f"\\boxed{{{k}}}", "gold": "1"} for k in (0, 1)
    ]
    scores = score(write(tmp_path / "x.jsonl", ours), tmp_path / "s.jsonl")
    assert [(r["id"], r["correct"]) for r in scores] == [("p/0", False), ("p/1", True)]
    cases = [
        {"id": "k-1", "kind": "k", "level": "equiv", "answer_type": "math", "gold": "9" * 60,
         "answer_parts": [["9", 60]], "expected": True},
        {"id": "k-2", "kind": "k", "level": "extract", "answer_type": "choice", "gold": "B",
         "model_output": "So the answer is (B).", "expected": True},
    ]  # fmt: skip
    scores = score(write(tmp_path / "c.jsonl", cases), tmp_path / "cs.jsonl")
    assert [(r["id"], r["correct"]) for r in scores] == [("k-1", True), ("k-2", True)]


def test_expectations_leave_the_debatable_out(tmp_path):
    path = write(tmp_path / "x.jsonl", BARE)
    scores = score(path, tmp_path / "s.jsonl")
    report = expectations(read_items(path, Fields()), scores)
    assert (report.overall.cases, report.overall.right) == (3, 3)
    assert (report.debatable, report.debatable_right) == (1, 0)
    plain = write(tmp_path / "y.jsonl", [{"response": "1", "gold": "1"}])
    with pytest.raises(InputError, match="expected"):
        expectations(read_items(plain, Fields()), [])


def test_it_resumes_and_does_not_grade_twice(tmp_path):
    path, out = write(tmp_path / "x.jsonl", BARE), tmp_path / "s.jsonl"
    whole = score(path, out)
    lines = out.read_text().splitlines(keepends=True)
    out.write_text("".join(lines[:2]) + lines[2][:20])  # killed in the middle of the third row
    again = score(path, out)
    assert again[:2] == whole[:2]
    assert [(r["id"], r["status"]) for r in again] == [(r["id"], r["status"]) for r in whole]
    before = out.stat().st_mtime_ns
    score(path, out)
    assert out.stat().st_mtime_ns == before


def test_another_grader_starts_anew(tmp_path):
    path = write(tmp_path / "x.jsonl", [{"response": "\\boxed{3.14}", "gold": "3.1416"}])
    out = tmp_path / "s.jsonl"
    assert not score(path, out)[0]["correct"]
    [row] = score(path, out, tolerance=0.01)
    assert row["correct"]


def test_scores_of_rows_that_are_no_longer_there_are_made_anew(tmp_path):
    path, out = write(tmp_path / "x.jsonl", BARE), tmp_path / "s.jsonl"
    score(path, out)
    longer = score(write(path, [*BARE, {"id": "f", "response": "\\boxed{1}", "gold": "1"}]), out)
    assert [row["id"] for row in longer] == ["a", "b", "c", "d", "e", "f"]
    shorter = score(write(path, BARE[1:3]), out)
    assert [(row["id"], row["row"]) for row in shorter] == [("b", 1), ("c", 2)]


def test_memory_does_not_grow_with_the_file(tmp_path):
    def peak(rows: int) -> int:
        text = "so it is " * 500 + "\\boxed{2}"
        path = write(tmp_path / f"{rows}.jsonl", [{"response": text, "gold": "2"}] * rows)
        tracemalloc.start()
        try:
            score(path, tmp_path / f"{rows}-scores.jsonl")
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    few, many = peak(600), peak(2400)  # 2.7 and 10.8 MB of text
    assert many < 1.5 * few


@pytest.mark.parametrize("content", ["Dear Anna,", '{"id": "a", "row": 1}'])
def test_a_file_that_is_one_unended_line_is_not_overwritten(tmp_path, content):
    path, out = write(tmp_path / "x.jsonl", BARE), tmp_path / "letter.txt"
    out.write_text(content)
    with pytest.raises(InputError, match="something else stands in it; choose another --out"):
        score(path, out)
    assert out.read_text() == content
    # Ours, killed in its first write, is gone over.
    whole = score(path, tmp_path / "s.jsonl")
    for cut in (1, 20, 40):
        (tmp_path / "t.jsonl").write_text((tmp_path / "s.jsonl").read_text()[:cut])
        again = score(path, tmp_path / "t.jsonl")
        assert [row["id"] for row in again] == [row["id"] for row in whole]


def test_foreign_files_are_not_overwritten(tmp_path):
    path, out = write(tmp_path / "x.jsonl", BARE), tmp_path / "s.jsonl"
    out.write_text('{"mine": 1}\n')
    with pytest.raises(InputError, match="holds no scores"):
        score(path, out)
    assert out.read_text() == '{"mine": 1}\n'
    with pytest.raises(InputError, match="overwrite their input"):
        score(path, path)
    score(path, tmp_path / "t.jsonl")
    other = write(tmp_path / "other.jsonl", BARE)
    with pytest.raises(InputError, match=r"scores of x\.jsonl"):
        score(other, tmp_path / "t.jsonl")


def test_several_workers_give_the_same_verdicts(tmp_path):
    hard = [
        {"id": str(k), "response": f"\\boxed{{\\int_0^{{{k}}} x\\,dx}}", "gold": f"{k * k}/2"}
        for k in range(1, 7)
    ]
    path = write(tmp_path / "x.jsonl", hard)
    one = score(path, tmp_path / "1.jsonl", deadline=20.0)
    two = score(path, tmp_path / "2.jsonl", workers=2, deadline=20.0)
    assert [r["status"] for r in one] == ["correct"] * 6
    assert [(r["id"], r["status"]) for r in two] == [(r["id"], r["status"]) for r in one]


def test_differences(tmp_path):
    path = write(tmp_path / "x.jsonl", BARE)
    score(path, tmp_path / "old.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "old.jsonl").read_text().splitlines()]
    rows[1].update(status="correct", correct=True, extracted="8")
    write(tmp_path / "new.jsonl", rows)
    [change] = changes(tmp_path / "old.jsonl", tmp_path / "new.jsonl")
    assert (change.id, change.before, change.after) == ("b", "wrong", "correct")
    assert (change.extracted_before, change.extracted_after) == ("7", "8")


def test_differences_are_found_in_any_order(tmp_path):
    old = [{"id": name, "status": "wrong", "extracted": name} for name in "abcd"]
    new = [{"id": name, "status": "correct", "extracted": name} for name in "dbxca"]
    write(tmp_path / "old.jsonl", old)
    write(tmp_path / "new.jsonl", new)
    found = changes(tmp_path / "old.jsonl", tmp_path / "new.jsonl")
    assert [change.id for change in found] == ["d", "b", "c", "a"]
    assert {(change.before, change.after) for change in found} == {("wrong", "correct")}


def test_the_command(call, tmp_path):
    path = write(tmp_path / "x.jsonl", BARE)
    done = call("score", str(path), "--expect")
    assert done.returncode == 0
    assert (tmp_path / "scores.jsonl").is_file()
    assert "2 of 5 correct" in done.stdout
    assert "false positives: none" in done.stdout
    new = tmp_path / "new.jsonl"
    done = call("score", str(path), "--out", str(new), "--diff", str(tmp_path / "scores.jsonl"))
    assert "0 verdicts changed" in done.stdout
    counted = json.loads(call("score", str(path), "--json", "--expect").stdout)
    assert counted["expected"]["all"]["cases"] == 3
    for arguments, said in (
        ([str(tmp_path / "no.jsonl")], "no such file"),
        ([str(path), "--answer-type", "maths"], "did you mean 'math'"),
        ([str(path), "--extract", "box"], "did you mean 'boxed'"),
        ([str(path), "--response-field", "x"], "no field 'x'"),
        ([str(path), str(path)], "several paths"),
        ([str(path), "--diff", str(tmp_path / "no.jsonl"), "--out", str(new)], "no such scores"),
        ([str(path), "--diff", str(new), "--out", str(new)], "choose an --out"),
        ([str(write(tmp_path / "e.jsonl", []))], "no row"),
    ):
        done = call("score", *arguments)
        assert done.returncode == 2, arguments
        assert said in done.stderr
        assert "Traceback" not in done.stderr


def test_hostile_text_is_graded_and_shown_harmlessly(call, tmp_path):
    rows = [
        {"id": "e", "response": "\\boxed{\x1b[31m4\x00}", "gold": "4"},
        {"id": "s", "response": "\\boxed{\ud800}", "gold": "4"},
        {"id": "m", "response": "{" * 1_000_000, "gold": "4"},
    ]
    path = write(tmp_path / "x.jsonl", rows)
    assert call("score", str(path)).returncode == 0
    old = [json.loads(x) for x in (tmp_path / "scores.jsonl").read_text().splitlines()]
    for row in old:
        row["status"] = "timeout"
    write(tmp_path / "old.jsonl", old)
    done = call("score", str(path), "--diff", str(tmp_path / "old.jsonl"))
    assert done.returncode == 0
    assert "3 verdicts changed" in done.stdout
    assert "\x1b" not in done.stdout
