"""Sets of runs as they come: doubles, other folders, seeds without a partner, imported numbers."""

import hashlib
import html
import json
import shutil

import numpy as np
import pytest

from oar_bench.errors import InputError
from oar_bench.reporting import write_report
from oar_bench.reporting.claims_run import judge_runs
from oar_bench.reporting.claims_source import gather
from oar_bench.reporting.frames import load
from oar_bench.reporting.headtohead import head_to_head
from oar_bench.reporting.headtohead_text import plain
from oar_bench.reporting.history import made_by, report_lines
from oar_bench.reporting.latex import booktabs
from tests.reporting.synthetic import SETTINGS, make_evaluation, make_out, make_run

SMALL = {"problems": 8, "samples": 2, "steps": 3}


def edit(path, change):
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value))


@pytest.fixture
def few(tmp_path):
    """Two methods under two seeds, eight problems."""
    return make_out(tmp_path / "OUT", ("grpo", "oar-p"), (0, 1), example=False, **SMALL)


def imported(out, method, value, seed=None, task="arithmetic", samples=False):
    """A run as `oar-bench import --method` leaves it: a number, or a copy of GRPO's samples."""
    folder = out / "runs" / method / f"seed-{seed or 0}"
    if samples:
        shutil.copytree(out / "runs/grpo/seed-0/eval", folder / "eval")
    else:
        number = {"value": value, "low": 0.1, "high": 0.9, "se": None, "df": None, "n": 8,
                  "method": "Wilson"}  # fmt: skip
        place = folder / "eval" / task / "results.json"
        place.parent.mkdir(parents=True)
        place.write_text(json.dumps({"schema": 1, "task": task, "complete": True, "imported": {},
                                     "metrics": {"avg@k": number}}))  # fmt: skip
    (folder / "run.json").write_text(json.dumps({
        "schema": 1, "method": method, "seed": seed or 0, "status": "finished",
        "imported": {"tool": "lm-eval", "seed": seed},
    }))  # fmt: skip


def test_two_evaluations_of_one_task_in_a_run_are_refused(few, tmp_path):
    run = few / "runs/oar-p/seed-1/eval"
    shutil.copytree(run / "arithmetic", run / "again")
    with pytest.raises(InputError, match=r"again and .*arithmetic are both of arithmetic"):
        write_report(few, tmp_path / "r")


def test_commands_to_test_a_claim_name_the_file_of_a_recipe_of_ones_own(few):
    def commands():
        return gather(load(few), few).evidence.commands

    assert commands().reproduce == "oar-bench reproduce tiny --out OUT"
    edit(few / "reproduce.json", lambda about: about.update(recipe="mine"))
    assert commands().reproduce == "oar-bench reproduce mine.yaml --out OUT"
    assert " --recipe mine.yaml " in commands().fidelity


@pytest.mark.parametrize("seed", ["1", None, [1], True, 1.5, -1, 10**30])
def test_a_seed_that_is_no_whole_number_is_told_by_its_file(few, tmp_path, seed):
    edit(few / "runs/oar-p/seed-1/run.json", lambda run: run.update(seed=seed))
    with pytest.raises(InputError, match=r"run\.json: seed is .*, no whole number from 0"):
        write_report(few, tmp_path / "r")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"statuses": None}, "'statuses' is not an object"),
        ({"statuses": {"correct": "x"}}, "statuses.correct is 'x', no number"),
        ({"truncated": "x"}, "truncated is 'x', no number"),
    ],
)
def test_metrics_of_other_types_are_told(few, tmp_path, change, told):
    place = few / "runs/oar-p/seed-1/eval/arithmetic/results.json"
    edit(place, lambda results: results["metrics"].update(change))
    with pytest.raises(InputError, match=told):
        write_report(few, tmp_path / "r")


def test_data_in_another_folder_are_the_same_data_by_their_fingerprint(tmp_path):
    """Runs of two machines: the paths differ, and both stand in the report's settings."""
    out = tmp_path / "OUT"
    for seed, place in ((0, "/a/x.jsonl"), (1, "/b/x.jsonl")):
        settings = {**SETTINGS, "data": {"path": place}, "model": {"path": f"{place}-m"}}
        make_run(out, "grpo", seed, settings=settings, fingerprints={"data": "d"}, **SMALL)
    page = write_report(out, tmp_path / "r").markdown.read_text()
    assert '| data.path | "/a/x.jsonl" and "/b/x.jsonl" |' in page
    make_run(out, "grpo", 2, settings=SETTINGS, fingerprints={"data": "e"}, **SMALL)
    with pytest.raises(InputError, match=r"fingerprints\.data is d in .* but e in"):
        write_report(out, tmp_path / "r")


def test_a_difference_without_spread_says_why_it_is_not_judged(tmp_path):
    """All right against all wrong over three seeds: three equal signs are a p of 1/4."""
    out = tmp_path / "OUT"
    for method, chance in (("grpo", 1.0), ("oar-p", 0.0)):
        for seed in range(3):
            folder = make_run(out, method, seed, evaluate=False, **SMALL) / "eval/arithmetic"
            make_evaluation(folder, "arithmetic", [chance] * 5, np.random.default_rng(1))
    found = head_to_head([out / "runs/grpo", out / "runs/oar-p"])
    [duel] = found.meetings[0].duels
    assert (duel.word, duel.pair.p) == ("tied", 0.25)
    said = "oar-p against grpo: every problem and seed shows the same difference, so there is"
    assert f"note: {said} no spread" in plain(found)
    assert "p only counts the signs of 3 seeds" in plain(found)
    page = write_report(out, tmp_path / "r").markdown.read_text()
    assert "oar-p (−100.0 everywhere, which leaves no spread to judge it by)" in page


def test_names_of_problems_and_tasks_are_shown_wherever_they_stand(few, tmp_path):
    """A lone surrogate, a formula, marks of direction and markup as a task and in every problem."""
    task, front = "=1+1|<b>`$\x1b\u202e", "\ud83d=x|<i>"

    def rename(row):
        row.update(task=task)
        if "problem" in row:
            row.update(problem=front + row["problem"])

    folders = [*few.glob("runs/*/*/eval/arithmetic"), few / "start/eval/arithmetic"]
    for folder in folders:
        edit(folder / "results.json", rename)
        for file in folder.glob("*.jsonl"):
            rows = [json.loads(line) for line in file.read_text().splitlines()]
            for row in rows:
                rename(row)
            file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    paths = write_report(few, tmp_path / "r")
    shown = front.replace("\ud83d", "⟨U+D83D⟩")
    table = next(path for path in paths.tables if path.name == "problems.csv").read_text()
    assert table.splitlines()[1].startswith(f"'=1+1|<b>`$⟨U+001B⟩⟨U+202E⟩,{shown}p0")
    assert f"{html.escape(shown)}p0" in paths.html.read_text()
    assert "<b>" not in paths.markdown.read_text()


def test_seeds_without_a_partner_are_counted_and_methods_without_one_named(few, tmp_path):
    make_run(few, "oar-p", 5, **SMALL)
    make_run(few, "oar-g", 6, **SMALL)
    page = write_report(few, tmp_path / "r").markdown.read_text()
    assert "| oar-p | 3 (2 paired) |" in page
    assert "Without a training seed in common with grpo, and so not compared: oar-g." in page


def test_imported_numbers_are_shown_and_not_called_left_out(few, tmp_path):
    imported(few, "oar-g", 0.5)
    page = write_report(few, tmp_path / "r").markdown.read_text()
    assert "Left out" not in page
    assert "| oar-g/seed-0/eval/arithmetic | arithmetic | 50.0 | [10.0, 90.0] |" in page
    sheet = (tmp_path / "r/tables/numbers.csv").read_text().splitlines()
    assert sheet[1] == "oar-g/seed-0/eval/arithmetic,arithmetic,0.5,0.1,0.9"
    found = head_to_head([few / "runs/grpo", few / "runs/oar-g"])
    assert found.left_out == []
    assert [line.partition(":")[0] for line in found.not_tested] == ["oar-g/seed-0/eval/arithmetic"]


def test_claims_say_why_imports_are_not_tested(few):
    def why():
        found = judge_runs(few, allow=ALLOW).verdicts
        return {v.row.claim.id: (v.word, v.row.why) for v in found}

    imported(few, "oar-g", 0.5)
    imported(few, "shuffled", None, samples=True)
    allowed = why()
    assert allowed["C2"] == ("not tested", "oar-g is a number without samples")
    assert allowed["C3"] == ("not tested", "no training seeds in the imports of shuffled")
    edit(few / "runs/shuffled/seed-0/run.json", lambda run: run["imported"].update(seed=0))
    assert why()["C3"] == ("inconclusive", "one paired seed says nothing of another training run")


ALLOW = ("settings", "fingerprints")  # an import doesn't know how it was trained


def test_commands_name_the_runs_folder_and_no_folder_of_this_machine(tmp_path):
    out = tmp_path / "tiny"
    about = {"recipe": "tiny", "commands": [{"command": "oar-bench reproduce tiny --out my/t"}]}
    command = f"oar-bench credit fidelity {out}/runs/m --out={out}/f --responses /home/me/r.jsonl"
    inside = made_by(command, out / "f", out, "my/t")
    assert inside.command == (
        "oar-bench credit fidelity my/t/runs/m --out=my/t/f --responses .../r.jsonl"
    )
    beside = made_by("oar-bench overhead tiny --out /e/o", tmp_path / "o", out, "my/t")
    assert report_lines(about, [inside, beside], ["git"])[1:] == [
        inside.command, "oar-bench overhead tiny --out .../o",
        "oar-bench report my/t --evidence .../o --allow git",
    ]  # fmt: skip
    for words in ("overhead tiny --out tiny/overhead", "overhead tiny --out overhead/overhead"):
        alike = made_by(f"oar-bench {words}", out / "overhead", out, "my/t")
        assert alike.command == "oar-bench overhead tiny --out my/t/overhead"
    default = made_by("oar-bench overhead tiny", tmp_path / "overhead/tiny", out, "my/t")
    assert report_lines(about, [default])[-1] == "oar-bench report my/t --evidence overhead/tiny"
    with pytest.raises(InputError, match="a command is no text"):
        report_lines({"commands": [{"command": 5}]})


def test_a_latex_cell_is_no_argument_of_the_row_before():
    table = booktabs(["m", "n"], [["[x]", "1"], ["*y", "2"], ["\x1b|`", "3"]])
    assert table.splitlines()[4:7] == [
        r"{}[x] & 1 \\", r"{}*y & 2 \\",
        r"$\langle$U+001B$\rangle$\textbar{}\textasciigrave{} & 3 \\",
    ]  # fmt: skip


def test_tables_and_figures_of_an_earlier_report_are_not_left_beside_a_new_one(few, tmp_path):
    first = write_report(few, tmp_path / "r")
    (tmp_path / "r/tables/mine.csv").write_text("kept")
    for file in few.glob("runs/*/*/timing.jsonl"):
        file.unlink()
    second = write_report(few, tmp_path / "r")
    gone = {path.name for path in first.tables + first.figures} - {
        path.name for path in second.tables + second.figures
    }
    assert gone == {"overhead.csv", "overhead.tex", "overhead.svg"}
    there = {path.name for path in (tmp_path / "r").glob("*/*")}
    assert not there & {*gone, "overhead.png"}
    assert "mine.csv" in there


def test_a_file_that_the_earlier_report_did_not_leave_so_is_never_removed(few, tmp_path):
    """Files of a reader's own by the names of ours, changed ones, and what lies behind links."""
    r, beyond = tmp_path / "r", tmp_path / "beyond"
    shutil.copytree(few, beyond)
    for name in ("tables/numbers.csv", "figures/example.svg"):  # neither report has them
        (r / name).parent.mkdir(parents=True)
        (r / name).write_text("mine")
    write_report(few, r)
    (r / "tables/overhead.csv").write_text("changed by hand")
    (r / "tables").rename(tmp_path / "moved")
    (r / "tables").symlink_to(tmp_path / "moved")
    noted = json.loads((r / ".written.json").read_text())
    whole = hashlib.sha256((beyond / "runs/grpo/seed-0/run.json").read_bytes()).hexdigest()
    hostile = "runs/grpo/seed-0/run.json"
    for name in (str(beyond / hostile), f"tables/../../beyond/{hostile}", "tables\0", "figures"):
        noted["files"][name] = whole
    (r / ".written.json").write_text(json.dumps(noted))
    for file in few.glob("runs/*/*/timing.jsonl"):
        file.unlink()
    write_report(few, r)
    assert (r / "tables/overhead.csv").read_text() == "changed by hand"
    assert (r / "tables/overhead.tex").is_file()
    assert not (r / "figures/overhead.svg").exists()
    assert (r / "tables/numbers.csv").read_text() == "mine"
    assert (r / "figures/example.svg").read_text() == "mine"
    assert (beyond / hostile).is_file()


@pytest.mark.parametrize("text", ["", "[]", '{"files": 3}', '{"files": {"tables/a": 3}}'])
def test_damaged_notes_of_an_earlier_report_remove_nothing(few, tmp_path, text):
    r = tmp_path / "r"
    (r / "tables").mkdir(parents=True)
    (r / "tables/a").write_text("mine")
    (r / ".written.json").write_text(text)
    write_report(few, r)
    assert (r / "tables/a").read_text() == "mine"


def test_an_import_that_was_broken_off_is_no_second_evaluation(few, tmp_path):
    run = few / "runs/oar-p/seed-1"
    shutil.copytree(run / "eval/arithmetic", run / "eval/.arithmetic.12.tmp")
    page = write_report(few, tmp_path / "r").markdown.read_text()
    assert ".tmp" not in page
    assert head_to_head([run, few / "runs/grpo"]).left_out == []


def test_evaluations_without_runs_are_told_where_to_go(few, tmp_path):
    folder = few / "runs/oar-p/seed-1/eval"
    for place in (folder, folder / "arithmetic"):
        with pytest.raises(InputError, match="evaluations without runs are for `oar-bench compare"):
            write_report(place, tmp_path / "r")


def test_fields_to_allow_are_told_once_each(few, tmp_path):
    with pytest.raises(InputError, match="no field is called 'grade'") as error:
        write_report(few, tmp_path / "r", allow=["grade"])
    words = str(error.value).partition("use one of ")[2].split(", ")
    assert len({*words}) == len(words)
