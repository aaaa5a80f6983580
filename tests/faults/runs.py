"""What the tests of faults share: a run as it must be, whatever befell it on the way."""

from __future__ import annotations

from pathlib import Path

from oar_bench.records import read_json, read_jsonl
from oar_bench.training.checkpoint import is_whole

LAST = Path("checkpoints") / "step-000004"
"""The final checkpoint of the smoke recipe."""


def rows_of(out: Path, name: str) -> list[dict]:
    return list(read_jsonl(out / f"{name}.jsonl"))


def assert_same_run(out: Path, unbroken: Path) -> None:
    """Weights, optimizer and rows are those of the unbroken run; nothing half made is left."""
    for name in ("model.safetensors", "trainer_state.safetensors"):
        assert (out / LAST / name).read_bytes() == (unbroken / LAST / name).read_bytes(), name
    for name in ("metrics", "rollouts"):
        assert rows_of(out, name) == rows_of(unbroken, name), name
    timed, wanted = (
        [(row["step"], row["phase"]) for row in rows_of(run, "timing")] for run in (out, unbroken)
    )
    assert len(timed) == len(set(timed))
    # What a checkpoint took is written after it: a kill in between may lose that, or an extra one.
    but = lambda rows: [row for row in rows if row[1] != "checkpoint"]  # noqa: E731
    assert but(timed) == but(wanted)
    assert all(is_whole(path) for path in (out / "checkpoints").glob("step-*"))
    assert not list((out / "checkpoints").glob(".tmp-*"))
    assert not list(out.glob(".*.tmp"))
    assert read_json(out / "run.json")["status"] == "finished"
