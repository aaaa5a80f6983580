"""kill -9 at random moments, resume, perhaps be killed again: the unbroken run each time."""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import pytest

from . import moments
from .runs import assert_same_run

SEED = 6
"""Of the moments, as shares of the time that a whole run takes here."""
MOST = 3
"""Kills of one run; then it may end."""


class Runs:
    """Runs of the smoke recipe, and how long a whole one takes on this machine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "log"
        self.seconds = 0.0
        for name in ("warm-up", "unbroken"):  # the first one's first step pays for the caches
            begun = time.monotonic()
            assert self.run(name) == 0, self.log.read_text()
            self.seconds = time.monotonic() - begun

    def run(self, name: str, kill_after: float | None = None) -> int | None:
        """Begin a run or go on with it; its exit code."""
        command = [
            "train",
            "smoke",
            "--method",
            "grpo",
            "--resume",
            "--out",
            f"{self.folder / name}",
        ]
        process = moments.begin(command, self.log)
        process.join(kill_after)
        process.kill()
        process.join()
        return process.exitcode


def where(out: Path) -> str:
    """In which state a kill left a run."""
    if not (out / "run.json").exists():
        return "nothing"
    if list((out / "checkpoints").glob(".tmp-*")):
        return "half a checkpoint"
    metrics = out / "metrics.jsonl"
    return f"{len(metrics.read_bytes().splitlines()) if metrics.exists() else 0} steps"


def kill(runs: Runs, wanted: int) -> dict[str, int]:
    """Kill runs at so many moments; the states that the kills left, with their counts."""
    moments_of = random.Random(SEED)
    states: dict[str, int] = {}
    kills = trial = 0
    while kills < wanted:
        trial += 1
        name, told = f"run-{trial}", []
        code: int | None = -signal.SIGKILL
        while code == -signal.SIGKILL:
            share = moments_of.random()
            again = len(told) < MOST and kills < wanted
            code = runs.run(name, share * runs.seconds if again else None)
            if code == -signal.SIGKILL:
                kills += 1
                told.append(share)
                state = where(runs.folder / name)
                states[state] = states.get(state, 0) + 1
        said = f"seed {SEED}, run {trial}, killed at {told} of {runs.seconds:.2f} s"
        assert code == 0, f"{said}: {runs.log.read_text()[-2000:]}"
        try:
            assert_same_run(runs.folder / name, runs.folder / "unbroken")
        except AssertionError as error:
            raise AssertionError(said) from error
    print(
        f"{kills} kills in {trial} runs, each ended as the unbroken one; left by the kills:", states
    )
    return states


@pytest.fixture(scope="module")
def runs(start, tmp_path_factory) -> Runs:
    return Runs(tmp_path_factory.mktemp("moments"))


def test_killed_at_five_moments(runs):
    assert sum(kill(runs, 5).values()) == 5


@pytest.mark.slow
def test_killed_at_fifty_moments(runs, tmp_path):
    runs.folder, folder = tmp_path, runs.folder
    os.symlink(folder / "unbroken", tmp_path / "unbroken")
    states = kill(runs, 50)
    assert sum(states.values()) == 50
    # The moments fall all over a run.
    assert len(states) >= 4
