"""The workflow of docs/ci.md: its shell steps run as GitHub runs them."""

import json
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml

from tests.regression.made import change
from tests.reporting.synthetic import write_rows

ROOT = Path(__file__).parent.parent.parent
PAGE = ROOT / "docs" / "ci.md"


def workflow():
    text = PAGE.read_text(encoding="utf-8").partition("```yaml\n")[2].partition("```")[0]
    return yaml.safe_load(text)


@pytest.fixture
def place(tmp_path, cache, start):
    """A checkout of what the steps need, and an `oar-bench` on the path."""
    (tmp_path / "baselines").symlink_to(ROOT / "baselines")
    command = tmp_path / "bin" / "oar-bench"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m oar_bench "$@"\n')
    command.chmod(0o755)
    return tmp_path


def run(step, place):
    """One step by GitHub's own shell line; its exit code and output."""
    env = {**os.environ, "PATH": f"{place / 'bin'}:{os.environ['PATH']}", "GITHUB_ACTIONS": "true",
           "PYTHONPATH": str(ROOT), "GITHUB_STEP_SUMMARY": str(place / "summary.md")}  # fmt: skip
    (place / "step.sh").write_text(step["run"])
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "step.sh"], cwd=place, env=env,
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_the_steps_pass_and_a_planted_regression_fails_the_check(place):
    job = workflow()["jobs"]["check"]
    install, make, check, summary = (s for s in job["steps"] if "run" in s)
    assert install["run"].startswith("python -m pip install -c constraints.txt .")
    assert summary["if"] == "always()"
    for step in (make, check, summary):
        done = run(step, place)
        assert done.returncode == 0, done.stdout + done.stderr
    assert (place / "summary.md").read_text().startswith("### oar-bench check: pass")
    for folder in (place / "results" / "smoke" / "runs" / "oar-g").glob("seed-*/eval/oar_sum"):
        rows = [json.loads(line) for line in (folder / "samples.jsonl").open()]
        write_rows(folder / "samples.jsonl", [{**r, "finish_reason": "length"} for r in rows])
        change(folder / "results.json", metrics__truncated=1.0)
    done = run(check, place)
    assert done.returncode == 1, done.stdout + done.stderr
    [error] = [line for line in done.stdout.splitlines() if line.startswith("::error ")]
    assert "truncated of oar-g on oar_sum" in error
    assert run(summary, place).returncode == 0
    assert "**regression**: truncated of oar-g" in (place / "summary.md").read_text()
    suite = ElementTree.parse(place / "check.xml").getroot()[0]
    assert suite.get("failures") == "1"
