"""What the baseline has and the run hasn't is said, and keeps a run from passing where it may."""

import json
import shutil

import numpy as np
import pytest

from oar_bench.errors import InputError
from oar_bench.regression.baseline import read_baseline, write_baseline
from oar_bench.regression.check import check
from oar_bench.regression.limits import limits_of
from oar_bench.regression.snapshot import take
from tests.regression.made import again, change
from tests.reporting.synthetic import make_evaluation, write_rows


@pytest.fixture
def two(tmp_path):
    """A model on two tasks, and its baseline."""
    p = np.linspace(0.1, 0.9, 30)
    for i, task in enumerate(("sum", "product")):
        folder = tmp_path / "model" / task
        make_evaluation(folder, task, p, np.random.default_rng(i), 4, "one")
    write_baseline(tmp_path / "two.json", take(tmp_path / "model"), "two tasks", {}, None)
    return tmp_path / "model"


def held(kept, folder, allow=(), **limits):
    return check(read_baseline(kept), take(folder, allow), limits_of(limits), 0.05, allow)


def test_a_seed_gone_from_a_method_s_folder(base, kept, tmp_path):
    folder = again(base, tmp_path / "again") / "runs" / "oar-p"
    shutil.rmtree(folder / "seed-1")
    found = held(kept, folder)
    assert (found.verdict, found.code) == ("unlike", 2)
    assert found.missing == ("oar-p, seed 1 has no finished result on arithmetic",)
    assert held(kept, folder, allow=["missing"]).code == 0
    assert held(kept, folder / "seed-0").code == 0


@pytest.mark.parametrize("how", ["removed", "unscored"])
def test_a_task_gone_from_a_model_s_evaluations(two, how):
    kept = two.parent / "two.json"
    assert held(kept, two).code == 0
    if how == "removed":
        shutil.rmtree(two / "product")
    else:
        (two / "product" / "results.json").unlink()
    found = held(kept, two)
    assert (found.code, found.missing) == (2, ("model has no finished result on product",))
    assert held(kept, two / "sum").code == 0  # the task is what was asked for


def test_what_a_run_does_not_say_is_noted(base, kept, tmp_path):
    folder = again(base, tmp_path / "again")
    for path in folder.glob("runs/oar-p/seed-*/timing.jsonl"):
        rows = [json.loads(line) for line in path.open()]
        write_rows(path, [{**row, "peak_memory_mb": float("nan")} for row in rows])
    for path in folder.glob("runs/grpo/**/samples.jsonl"):
        path.unlink()
    found = held(kept, folder)
    why = "isn't known of every run here, as it is in the baseline"
    assert [note for note in found.notes if note.endswith(why)] == [
        f"truncated of grpo {why}", f"tokens of grpo {why}", f"peak memory of oar-p {why}",
    ]  # fmt: skip
    assert held(kept, folder, truncated="off", tokens="off", memory="off").notes == (
        "not checked (off): truncated, tokens and peak memory",
    )


def test_rows_of_a_tool_that_counts_no_tokens(two):
    """As an import writes them: neither a finish reason nor a count."""
    kept = two.parent / "two.json"
    for path in two.glob("*/samples.jsonl"):
        rows = [json.loads(line) for line in path.open()]
        write_rows(path, [{**r, "finish_reason": None, "response_tokens": None} for r in rows])
    found = held(kept, two)
    assert {c.metric for c in found.checks} == {"drop", "no-answer"}
    write_baseline(kept, take(two), "imported", {}, None)
    again = held(kept, two)
    assert (again.code, again.notes) == (0, ())


def test_another_name_for_the_only_result_is_told(base, tmp_path):
    kept = tmp_path / "one.json"
    write_baseline(kept, take(base / "runs" / "grpo" / "seed-0"), "one run", {}, None)
    [note] = [n for n in held(kept, base / "runs" / "oar-p" / "seed-1").notes if "held" in n]
    assert note.startswith("oar-p, seed 1 here is held against grpo, seed 0 of the baseline")


def test_a_baseline_of_other_tasks_is_named(two, kept):
    with pytest.raises(InputError, match="this is of product and sum, but the baseline is of arit"):
        held(kept, two)


def test_an_update_with_less_says_what_is_no_longer_checked(base, kept, call, tmp_path):
    file = shutil.copy(kept, tmp_path / "made.json")
    command = ("check", str(base / "runs" / "oar-p"), "--baseline", str(file), "--update",
               "--reason", "fewer")  # fmt: skip
    done = call(*command)
    gone = [line for line in done.stdout.splitlines() if line.startswith("no longer checked: ")]
    assert [line.partition(": ")[2] for line in gone] == [
        "start on arithmetic", *(f"grpo, seed {s} on arithmetic" for s in range(3)),
    ]  # fmt: skip
    shutil.copy(kept, file)
    assert json.loads(call(*command, "--json").stdout)["gone"][0] == "start on arithmetic"


def test_equal_cells_of_other_weights_are_a_test(tmp_path):
    """24 problems all solved: a model that fails 2 of 100 is likely to solve them all as well, and
    must not pass a limit of 2 points for it."""
    for name in ("before", "now"):
        make_evaluation(tmp_path / name / "sum", "sum", np.ones(24), np.random.default_rng(1), 1,
                        name)  # fmt: skip
    kept = tmp_path / "one.json"
    write_baseline(kept, take(tmp_path / "before"), "all right", {}, None)
    off = dict.fromkeys(("truncated", "no-answer", "tokens"), "off")
    [found] = held(kept, tmp_path / "now", **off).checks
    assert (found.before, found.now, found.verdict) == (1.0, 1.0, "too little data")
    [found] = held(kept, tmp_path / "now", drop="20pp", **off).checks
    assert found.verdict == "pass"
    change(tmp_path / "now" / "sum" / "results.json", fingerprints__model="m-before")
    [found] = held(kept, tmp_path / "now", **off).checks
    assert (found.identical, found.verdict) == (True, "pass")


@pytest.mark.parametrize("update", [(), ("--update", "--reason", "first")])
def test_a_number_without_samples_has_nothing_to_check(kept, call, tmp_path, update):
    number = {"value": 0.5, "low": 0.1, "high": 0.9, "se": None, "df": None, "n": 8,
              "method": "Wilson"}  # fmt: skip
    place = tmp_path / "model" / "arithmetic" / "results.json"
    place.parent.mkdir(parents=True)
    place.write_text(json.dumps({"schema": 1, "task": "arithmetic", "complete": True,
                                 "imported": {}, "metrics": {"avg@k": number}}))  # fmt: skip
    file = str(tmp_path / "new.json") if update else str(kept)
    done = call("check", str(tmp_path / "model"), "--baseline", file, *update)
    assert done.returncode == 2
    assert "there is no verdict on each response here, only numbers; import" in done.stderr
    assert not (tmp_path / "new.json").exists()
