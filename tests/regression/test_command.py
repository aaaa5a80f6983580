"""The command: exit codes, what each output says, hostile names, and bad input in one line."""

import json
import re
import shutil
from pathlib import Path
from xml.etree import ElementTree

import pytest

from oar_bench.regression.baseline import write_baseline
from oar_bench.regression.snapshot import take
from tests.regression.made import again, change, redraw
from tests.reporting.synthetic import HOSTILE


@pytest.fixture(scope="module")
def worse(base, tmp_path_factory):
    return redraw(again(base, tmp_path_factory.mktemp("worse") / "OUT"), shift=-0.6)


@pytest.fixture(scope="module")
def written(base, tmp_path_factory):
    path = tmp_path_factory.mktemp("expected") / "made.json"
    write_baseline(path, take(base), "first run", {}, None)
    return path


@pytest.fixture
def kept(written, tmp_path):
    return str(shutil.copy(written, tmp_path / "made.json"))


def test_a_regression_in_every_output(worse, kept, call, tmp_path):
    summary, junit = tmp_path / "check.md", tmp_path / "check.xml"
    done = call("check", str(worse), "--baseline", kept, "--markdown", str(summary), "--junit",
                str(junit), "--annotations")  # fmt: skip
    assert done.returncode == 1
    assert "REGRESSION" in done.stdout
    errors = [line for line in done.stdout.splitlines() if line.startswith("::error ")]
    assert errors[0].startswith("::error title=oar-bench check%3A regression::accuracy of grpo on")
    assert " %25 " in errors[0]
    text = summary.read_text()
    assert text.startswith("### oar-bench check: regression (")
    assert "- **regression**: accuracy of oar-p on arithmetic: " in text
    suite = ElementTree.parse(junit).getroot()[0]
    failed = [case.get("name") for case in suite if case.find("failure") is not None]
    assert {"accuracy of grpo", "accuracy of oar-p"} <= {*failed}
    assert int(suite.get("failures")) == len(failed)
    assert int(suite.get("tests")) == len(suite) == 15


def test_json_is_one_object(worse, kept, call):
    done = call("check", str(worse), "--baseline", kept, "--json")
    found = json.loads(done.stdout)
    assert (done.returncode, found["exit_code"], found["verdict"]) == (1, 1, "regression")
    assert found["baseline_written"]["reason"] == "first run"
    worst = next(c for c in found["checks"] if c["method"] == "oar-p" and c["metric"] == "drop")
    assert worst["change"] < -0.3
    assert worst["verdict"] == "regression"
    assert worst["limit"] == 0.02


def test_github_annotates_by_itself(worse, kept, call, monkeypatch):
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    assert "::error" not in call("check", str(worse), "--baseline", kept).stdout
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    assert "::error" in call("check", str(worse), "--baseline", kept).stdout
    assert "::error" not in call("check", str(worse), "--baseline", kept, "--json").stdout


def test_unlike_runs_are_written_out_too(base, kept, call, tmp_path):
    folder = again(base, tmp_path / "again")
    for path in folder.glob("**/results.json"):
        change(path, fingerprints__grader="g2", fingerprints__prompt="p2")
    junit, summary = tmp_path / "x.xml", tmp_path / "x.md"
    done = call("check", str(folder), "--baseline", kept, "--junit", str(junit), "--markdown",
                str(summary))  # fmt: skip
    assert done.returncode == 2
    assert [line[:30] for line in done.stdout.splitlines() if line.startswith("unlike: f")] == [
        "unlike: fingerprints.prompt is", "unlike: fingerprints.grader is",
    ]  # fmt: skip
    suite = ElementTree.parse(junit).getroot()[0]
    assert [case.get("name") for case in suite] == ["fingerprints.prompt", "fingerprints.grader"]
    assert suite.get("errors") == "2"
    assert "**unlike**: fingerprints.grader is g1" in summary.read_text()


def test_too_little_data_says_what_would_settle_it(base, kept, call, tmp_path):
    folder = redraw(again(base, tmp_path / "again"))
    done = call("check", str(folder), "--baseline", kept, "--max-drop", "0.1pp")
    assert done.returncode == 2
    settle = r"is [0-9.]+ pp: it takes some \d+ times the data \(problems, samples, seeds\), or a"
    assert re.search(f"the minimum detectable effect {settle} wider --max-drop", done.stdout)


def test_limits_and_alpha_are_kept_with_the_baseline_and_overridden(base, kept, call, tmp_path):
    folder = redraw(again(base, tmp_path / "again"))
    wide = ("--max-drop", "30pp", "--limit", "truncated=30pp", "--limit", "no-answer=30pp",
            "--limit", "tokens=off", "--alpha", "0.1")  # fmt: skip
    done = call("check", str(base), "--baseline", kept, "--update", "--reason", "wide", *wide)
    assert "(was " in done.stdout
    found = json.loads(call("check", str(folder), "--baseline", kept, "--json").stdout)
    assert (found["verdict"], found["alpha"]) == ("pass", 0.1)
    assert "tokens" not in {c["metric"] for c in found["checks"]}
    again_tight = call("check", str(folder), "--baseline", kept, "--max-drop", "0.1pp")
    assert again_tight.returncode == 2


def test_hostile_names_stay_text(base, call, tmp_path):
    """A task's name as a model or a stranger might write it, in every output."""
    folder = again(base, tmp_path / "again")
    for path in folder.glob("**/results.json"):
        change(path, task=HOSTILE[5] + HOSTILE[1] + HOSTILE[0], fingerprints__task="\x1b[31m|\n::x")
    for path in folder.glob("**/scores.jsonl"):
        rows = [json.loads(line) for line in path.open()]
        path.write_text("".join(json.dumps({k: v for k, v in r.items() if k != "task"}) + "\n"
                                for r in rows))  # fmt: skip
    kept, summary, junit = (tmp_path / name for name in ("x.json", "x.md", "x.xml"))
    call("check", str(folder), "--baseline", str(kept), "--update", "--reason", HOSTILE[0])
    worse = redraw(again(base, tmp_path / "worse"), shift=-0.6)
    for path in worse.glob("**/results.json"):
        change(path, task=HOSTILE[5] + HOSTILE[1] + HOSTILE[0], fingerprints__task="\x1b[31m|\n::x")
    for path in worse.glob("**/scores.jsonl"):
        rows = [json.loads(line) for line in path.open()]
        path.write_text("".join(json.dumps({k: v for k, v in r.items() if k != "task"}) + "\n"
                                for r in rows))  # fmt: skip
    done = call("check", str(worse), "--baseline", str(kept), "--markdown", str(summary),
                "--junit", str(junit), "--annotations")  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert "\x1b" not in done.stdout + summary.read_text() + junit.read_text()
    assert "<script>" not in summary.read_text()
    assert all(line.startswith("| ") is line.endswith(" |")
               for line in summary.read_text().splitlines())  # fmt: skip
    ElementTree.parse(junit)


def test_a_baseline_that_somebody_else_wrote_commands_nothing(base, kept, call, tmp_path):
    """Its reason, name and settings in the terminal, where GitHub reads commands too."""
    content = json.loads(Path(kept).read_text())
    content["history"][-1]["reason"] = "\x1b[2J\n::error::planted"
    content["name"] = "x\n::stop-commands::y"
    content["settings"]["\x1b[31m\n::add-mask::z"] = "1\n::notice::q"
    (tmp_path / "made.json").write_text(json.dumps(content))
    junit, summary = tmp_path / "x.xml", tmp_path / "x.md"
    done = call("check", str(base), "--baseline", kept, "--annotations", "--junit", str(junit),
                "--markdown", str(summary))  # fmt: skip
    assert done.returncode == 0
    written = done.stdout + summary.read_text() + junit.read_text()
    assert "\x1b" not in written
    commands = [line for line in written.splitlines() if line.lstrip().startswith("::")]
    assert [line[:31] for line in commands] == ["::notice title=oar-bench check:"]


def test_a_check_that_cannot_be_made_leaves_no_older_verdict(base, kept, call, tmp_path):
    junit, summary = tmp_path / "x.xml", tmp_path / "x.md"
    command = ("check", str(base), "--baseline", kept, "--junit", str(junit), "--markdown",
               str(summary), "--annotations")  # fmt: skip
    assert call(*command).returncode == 0
    done = call("check", str(tmp_path / "none"), *command[2:])
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert done.stdout.startswith("::error title=oar-bench check%3A not made::")
    assert summary.read_text().startswith("### oar-bench check: not made\n\n- ")
    assert "no such folder of results" in summary.read_text()
    suite = ElementTree.parse(junit).getroot()[0]
    assert (suite.get("tests"), suite.get("errors")) == ("1", "1")
    assert "no such folder" in suite[0].find("error").get("message")


@pytest.mark.parametrize("flags", [("--markdown", "--junit"), ("--markdown",), ("--junit",)])
def test_no_file_is_written_over_another(base, kept, call, tmp_path, flags):
    file = str(tmp_path / "one") if len(flags) > 1 else kept
    before = Path(kept).read_text()
    words = [word for flag in flags for word in (flag, file)]
    done = call("check", str(base), "--baseline", kept, *words)
    assert done.returncode == 2
    assert done.stderr.endswith("one file for two things; name another for each\n")
    assert Path(kept).read_text() == before


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--max-drop", "2"), "--max-drop: '2' is no limit; write it as 2pp, or off"),
        (("--max-drop", "2%"), "'2%' is no limit"),
        (("--max-drop", "-1pp"), "'-1pp' is no limit"),
        (("--max-drop", "0pp"), "'0pp' is no limit"),
        (("--max-drop", "101pp"), "'101pp' is no limit"),
        (("--max-drop", "nanpp"), "'nanpp' is no limit"),
        (("--alpha", "0"), "--alpha: 0.0 is no chance of error"),
        (("--alpha", "0.5"), "--alpha: 0.5 is no chance of error"),
        (("--alpha", "nan"), "--alpha: nan is no chance of error"),
        (("--alpha", "x"), "Invalid value for '--alpha'"),
        (("--limit", "tokens"), "NAME=SIZE is expected"),
        (("--limit", "token=10%"), "nothing is called 'token'; did you mean 'tokens'?"),
        (("--limit", "tokens=10pp"), "'10pp' is no limit"),
        (("--limit", "memory=more"), "'more' is no limit"),
        (("--allow", "greder"), "--allow: no field is called 'greder'; did you mean 'grader'?"),
        (("--update",), "--update: a reason is needed"),
        (("--update", "--reason", " "), "--update: a reason is needed"),
        (("--reason", "why"), "--reason: there is nothing to give a reason for; add --update"),
        (("--update", "--reason", "x", "--junit", "x"), "it checks nothing"),
        (("--update", "--reason", "x", "--allow", "greder"), "no field is called 'greder'"),
        (("--json", "--annotations"), "both go to standard output"),
        (("--markdown", "/proc/none/x.md"), "missing or can't be made"),
        (("--junit", "/"), "--junit /: a file is expected, not a folder"),
        (("--update", "--reason", "x", "--baseline", "smoke"), "a file is needed to write to"),
        (("--baseline", "/"), "not a folder"),
        (("--baseline", "smoek"), "no such baseline"),
        (("--unknown",), "no such option"),
        (
            (
                "--max-drop",
                "off",
                *(
                    word
                    for name in ("truncated", "no-answer", "tokens", "step-time", "memory")
                    for word in ("--limit", f"{name}=off")
                ),
            ),
            "every check is off",
        ),
    ],
)
def test_bad_input_is_one_line(base, kept, call, arguments, said):
    done = call("check", str(base), "--baseline", kept, *arguments)
    assert done.returncode == 2, done.stdout
    assert done.stderr.count("\n") == 1, done.stderr
    assert said.lower() in done.stderr.lower()


def test_bad_runs_are_one_line(kept, call, tmp_path):
    (tmp_path / "empty").mkdir()
    for path, said in ((tmp_path / "none", "no such folder"), (tmp_path / "empty", "no scored"),
                       (kept, "no such folder")):  # fmt: skip
        done = call("check", str(path), "--baseline", kept)
        assert done.returncode == 2
        assert done.stderr.count("\n") == 1
        assert said in done.stderr
    assert call("check", "x").returncode == 2
