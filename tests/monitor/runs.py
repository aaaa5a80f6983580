"""Hand-made runs for the tests: folders with the files that training leaves."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def about(status: str = "running", steps: Any = 4, **other: Any) -> dict[str, Any]:
    """A run.json."""
    return {
        "recipe": "tiny", "method": "oar-p", "seed": 1, "status": status,
        "settings": {"train": {"steps": steps}}, **other,
    }  # fmt: skip


def metrics(step: int, **other: Any) -> dict[str, Any]:
    """A row of metrics.jsonl whose numbers follow from its step."""
    return {
        "step": step, "reward": step / 8, "kl_start": step / 1000, "response_length": 30.0 + step,
        "truncated": 0.25, "grad_norm": 1 / step, **other,
    }  # fmt: skip


def timing(step: int) -> list[dict[str, Any]]:
    """The rows of timing.jsonl of a step: 4 s, in the first step 12 s."""
    seconds = {"rollout": 3.0 if step > 1 else 11.0, "update": 1.0}
    return [{"step": step, "phase": name, "seconds": s, "tokens": 1} for name, s in seconds.items()]


def lines(rows: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def make_run(folder: Path, steps: int, status: str = "running", **other: Any) -> Path:
    """A run that has done some steps."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "run.json").write_text(json.dumps(about(status, **other)))
    (folder / "metrics.jsonl").write_text(lines([metrics(s) for s in range(1, steps + 1)]))
    (folder / "timing.jsonl").write_text(
        lines([row for s in range(1, steps + 1) for row in timing(s)])
    )
    return folder
