"""Slices and problems of a report, against numbers made by hand."""

import pandas as pd
import pytest

from oar_bench.errors import InputError
from oar_bench.reporting import write_report
from oar_bench.reporting.drilldown import HEAD, MOST_METHODS, TAIL, drill, excerpt, rows_about
from oar_bench.reporting.frames import load
from oar_bench.reporting.slices import BY_START, as_frame, problems_of, slices
from tests.reporting.synthetic import make_run, write_object, write_rows

KEYS = {"correct": "C", "wrong": "W", "no_answer": "N", "truncated": "T"}


def make(folder, letters, prompts=True, levels=("1", "2", "2")):
    """An evaluation with the verdicts given as letters, a word a problem."""
    names = {letter: status for status, letter in KEYS.items()}
    scores, samples = [], []
    for i, word in enumerate(letters):
        for k, letter in enumerate(word):
            where = {"schema": 1, "task": "t", "problem": f"q{i}", "sample": k}
            scores.append({**where, "status": names[letter], "correct": letter == "C",
                           "extracted": None if letter in "NT" else f"{i}{k}",
                           "how": None if letter in "NT" else "boxed",
                           "stage": "exact"})  # fmt: skip
            samples.append({**where, "response": f"r{i}{k}", "gold": "4"})
    write_rows(folder / "scores.jsonl", scores)
    write_rows(folder / "samples.jsonl", samples)
    if prompts:
        write_rows(folder / "problems.jsonl", [
            {"problem": f"q{i}", "prompt": f"ask {i}", "gold": "4", "level": levels[i]}
            for i in range(len(letters))
        ])  # fmt: skip
    text = "".join(letters)
    write_object(folder / "results.json", {
        "schema": 1, "kind": "evaluation", "task": "t", "model": "m", "settings": {},
        "metrics": {"avg@k": {"value": text.count("C") / len(text)}, "n_samples": len(text),
                    "statuses": {}, "truncated": 0.0, "no_answer": 0.0, "response_tokens": None,
                    "equal_completions": 0.0},
        "fingerprints": {"model": "mm"}, "environment": {},
    })  # fmt: skip


@pytest.fixture
def out(tmp_path):
    make(tmp_path / "start/eval/t", ["NNNN", "CWWW", "CCCC"])
    for method, letters in {
        "grpo": ["CWNT", "CCWW", "CCCC"],
        "oar-p": ["CCCC", "WWWW", "CCCT"],
    }.items():
        run = make_run(tmp_path, method, 0, evaluate=False, steps=2)
        make(run / "eval/t", letters)
    return tmp_path


def test_slices_by_hand(out):
    collection = load(out)
    rows = problems_of(collection.evaluations_of("t"))
    frame = as_frame([slices(collection, "t", rows)]).set_index(["by", "value", "method"])
    assert frame.loc[("level", "1", "grpo")].tolist() == ["t", 1, 0.25, 0.25, 0.25]
    assert frame.loc[("level", "2", "grpo")].tolist() == ["t", 2, 0.75, 0.0, 0.0]
    assert frame.loc[("level", "2", "oar-p")].tolist() == ["t", 2, 0.375, 0.125, 0.0]
    assert frame.loc[(BY_START, "never", "oar-p"), "right"] == 1
    assert frame.loc[(BY_START, "up to half", "oar-p"), "right"] == 0
    assert frame.loc[(BY_START, "always", "start"), "problems"] == 1


def test_the_slices_of_a_label_add_up_to_the_whole(out):
    collection = load(out)
    found = slices(collection, "t", problems_of(collection.evaluations_of("t")))
    for parts in found.kinds.values():
        assert sum(part.problems for part in parts) == 3
        for place, method in enumerate(found.methods):
            total = sum(part.problems * part.cells[place].right for part in parts) / 3
            evaluation = next(iter(collection.evaluations_of("t")[method].values()))
            assert total == pytest.approx(evaluation.matrix.values.mean())


def test_forms_by_hand(out):
    collection = load(out)
    found = slices(collection, "t", {})
    forms = {form.how: form.cells[found.methods.index("grpo")] for form in found.forms}
    assert forms["boxed"] == (10 / 12, 7 / 10)
    assert forms["–"] == (2 / 12, 0.0)
    assert [*found.kinds] == [BY_START]


def test_problems_on_which_methods_differ_come_first_with_one_right_and_one_wrong(out):
    collection = load(out)
    found = drill(collection, "t", problems_of(collection.evaluations_of("t")), most=2)
    assert [row.problem for row in found.rows] == ["q0", "q1", "q2"]
    assert found.rows[0].shares == [0.0, 0.25, 1.0]
    assert [one.solved.problem for one in found.shown] == ["q0", "q1"]
    told = [(a.method, a.sample, a.right, a.response) for a in found.shown[0].answers]
    assert told == [("grpo", 0, True, "r00"), ("grpo", 1, False, "r01"), ("oar-p", 0, True, "r00")]
    assert "read “01” (in a box), which is not the gold" in found.shown[0].answers[1].why
    assert found.every.set_index("problem").loc["q1", "grpo"] == 0.5


def test_without_prompts_or_samples_the_rest_is_shown(out):
    for name in ("problems", "samples"):
        for path in out.rglob(f"{name}.jsonl"):
            path.unlink()
    paths = write_report(out, out / "report")
    assert "q0" in paths.html.read_text()
    assert '<details class="problem">' not in paths.html.read_text()


def test_responses_of_more_methods_than_fit_are_said_to_be_missing(out):
    for place in range(MOST_METHODS):
        make(make_run(out, f"m{place}", 0, evaluate=False, steps=2) / "eval/t", ["CCCC"] * 3)
    collection = load(out)
    found = drill(collection, "t", {}, most=1)
    assert len({a.method for a in found.shown[0].answers}) == MOST_METHODS
    assert found.unshown == ["start", "m6", "m7"]
    assert "No responses are shown of start, m6, m7." in write_report(
        out, out / "report"
    ).html.read_text()  # fmt: skip


def test_every_problem_is_in_the_sheet_and_the_latex_says_what_the_page_says(out):
    paths = write_report(out, out / "report")
    files = {path.name: path for path in paths.tables}
    frame = pd.read_csv(files["problems.csv"]).set_index("problem")
    assert frame["oar-p"].tolist() == [1.0, 0.0, 0.75]
    rows = files["comparison.tex"].read_text().splitlines()
    assert any(row.startswith("t & oar-p & 1 & 58.3 ") for row in rows)
    assert "level & 2 & 2 &" in files["slices.tex"].read_text()
    for path in paths.figures:
        assert path.with_suffix(".png").read_bytes().startswith(b"\x89PNG")


def test_rows_about_finds_names_with_quotes_and_leaves_a_torn_line(tmp_path):
    path = tmp_path / "rows.jsonl"
    rows = [{"problem": name, "text": '"problem": "b"'} for name in ('a"b', "b", "a")]
    write_rows(path, rows)
    path.write_text(path.read_text() + '{"problem": "b", "te')
    assert [row["problem"] for row in rows_about(path, ['a"b', "b"])] == ['a"b', "b"]
    path.write_text('{"problem": "b", oops}\n')
    with pytest.raises(InputError, match="line 1 is not JSON"):
        list(rows_about(path, ["b"]))


@pytest.mark.parametrize("character", ["x", "\u202e", "\n"])
def test_an_excerpt_is_bounded_and_keeps_both_ends(character):
    shown = excerpt("A" + character * 50_000 + "Z")
    assert shown[0] == "A"
    assert shown[-1] == "Z"
    assert len(shown) < HEAD + TAIL + 80
    assert "50,002" in shown
