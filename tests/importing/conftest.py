"""Fixtures that the tools' own code wrote (data/README.md), laid out as the tools lay them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from oar_bench.importing.found import Options
from oar_bench.importing.run import Imported, Job, run_import
from oar_bench.records import read_jsonl

DATA = Path(__file__).parent / "data"
LM_EVAL, MORE = DATA / "lm-eval", DATA / "lm-eval-more"
LOG, JSON_LOG = DATA / "inspect_ai" / "sums.eval", DATA / "inspect_ai" / "sums.json"
DATE = "2026-11-30T16-35-29.211619"


class Silent:
    """No progress."""

    def __call__(self, name: str, total: int):
        return self

    def __enter__(self):
        return lambda done, note: None

    def __exit__(self, *_):
        return None


def imports(source: Path, out: Path, **job) -> dict[str, Imported]:
    """Everything of a source, by task."""
    options = Options(**{k: job.pop(k) for k in ("model", "metric", "tasks") if k in job})
    done = run_import(Job([source], out, options, **job), Silent())
    return {one.results["task"]: one for one in done}


def rows(one: Imported, name: str = "scores.jsonl"):
    return list(read_jsonl(one.folder / name))


@pytest.fixture
def lighteval(tmp_path) -> Path:
    """An output folder of lighteval, its files under their own names."""
    out = tmp_path / "lighteval"
    results, details = out / "results" / "sums-model", out / "details" / "sums-model" / DATE
    results.mkdir(parents=True)
    details.mkdir(parents=True)
    shutil.copy(DATA / "lighteval" / "results.json", results / f"results_{DATE}.json")
    for task in ("sums", "sums_four"):
        shutil.copy(
            DATA / "lighteval" / f"{task}.parquet", details / f"details_{task}|0_{DATE}.parquet"
        )
    return out


@pytest.fixture
def lm_eval(tmp_path) -> Path:
    """A copy of lm-eval's output that a test may damage."""
    return Path(shutil.copytree(LM_EVAL, tmp_path / "lm-eval"))


def change(path: Path, edit) -> None:
    """Rewrite a JSON file, or every row of JSON lines, by `edit`."""
    text = path.read_text()
    if path.suffix == ".jsonl":
        changed = [json.loads(line) for line in text.splitlines()]
        for row in changed:
            edit(row)
        path.write_text("".join(json.dumps(row) + "\n" for row in changed))
        return
    value = json.loads(text)
    edit(value)
    path.write_text(json.dumps(value))
