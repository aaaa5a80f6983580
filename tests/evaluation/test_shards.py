"""Shards: the same rows as one run, merged by file, never mixed."""

from __future__ import annotations

import json
import shutil
import tracemalloc
from pathlib import Path

import pytest

from oar_bench.engines.hf import HFEngine
from oar_bench.errors import InputError
from oar_bench.evaluation.generate import generate, sampling_of
from oar_bench.evaluation.score import score
from oar_bench.evaluation.shards import Shard, merge_shards, shards_in
from oar_bench.identity import fingerprint
from oar_bench.records import read_jsonl
from oar_bench.tasks.registry import load_task


@pytest.fixture(scope="module")
def make(start: Path):
    """Generates into a folder, with or without a shard."""
    engine, task = HFEngine.load(start, 32), load_task("oar_sum", limit=7)

    def run(folder: Path, shard: str | None = None, seed: int = 0) -> Path:
        part = Shard.parse(shard) if shard else None
        return generate(
            engine, "m", "weights", task, folder, samples=2,
            sampling=sampling_of(task, temperature=1.0), seed=seed, shard=part,
        )  # fmt: skip

    return run


@pytest.fixture(scope="module")
def whole(make, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    make(folder)
    return folder


def rows(folder: Path) -> list[dict]:
    found = list(read_jsonl(folder / "samples.jsonl"))
    return sorted(found, key=lambda row: (row["problem"], row["sample"]))


@pytest.mark.parametrize("count", [1, 2, 3, 9])
def test_merged_shards_are_the_whole(make, whole, tmp_path, count):
    for index in reversed(range(count)):
        make(tmp_path, f"{index}/{count}")
    assert not (tmp_path / "samples.jsonl").exists()
    results = score(tmp_path)
    assert rows(tmp_path) == rows(whole)
    assert shards_in(tmp_path) == []
    assert results["metrics"] == score(whole)["metrics"]
    order = [(row["problem"], row["sample"]) for row in read_jsonl(tmp_path / "samples.jsonl")]
    assert [sample for _, sample in order] == [0, 1] * 7
    assert score(tmp_path)["metrics"] == results["metrics"]


def test_shards_of_several_folders_come_together(make, whole, tmp_path):
    for index in (0, 1):
        make(tmp_path / str(index), f"{index}/2")
    shutil.copy(tmp_path / "1" / Shard(2, 1).file, tmp_path / "0")
    score(tmp_path / "0")
    assert rows(tmp_path / "0") == rows(whole)


def test_a_missing_or_unfinished_shard_is_named(make, tmp_path):
    make(tmp_path, "0/3")
    with pytest.raises(InputError, match=r"shard 1 of 3 is missing \(1 are there\).*--shard 1/3"):
        score(tmp_path)
    make(tmp_path, "1/3")
    path = make(tmp_path, "2/3")
    path.write_text("".join(path.read_text().splitlines(keepends=True)[:-1]))
    with pytest.raises(InputError, match=r"unfinished: 3 of 4 samples.*--shard 2/3"):
        score(tmp_path)
    hidden = sorted(p.name for p in tmp_path.iterdir() if p.name.startswith("."))
    assert [name for name in hidden if not name.endswith(".lock")] == []
    make(tmp_path, "2/3")
    assert score(tmp_path)["complete"]


def test_nothing_is_mixed(make, whole, tmp_path):
    make(tmp_path, "0/2")
    with pytest.raises(InputError, match="holds shards of 2, not of 3"):
        make(tmp_path, "0/3")
    with pytest.raises(InputError, match="holds shards of 2;"):
        make(tmp_path)
    with pytest.raises(InputError, match="another sampling"):
        make(tmp_path, "1/2", seed=1)
    with pytest.raises(InputError, match="is whole"):
        make(whole, "0/2")


def edited(path: Path, change) -> None:
    found = [json.loads(line) for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps(row) + "\n" for row in change(found)))


FOREIGN = [
    (lambda found: [{**row, "fingerprint": "0" * 12} for row in found], "of another evaluation"),
    (lambda found: [*found, found[0]], "occurs twice"),
    (
        lambda found: [{**row, "problem": f"x-{i}"} for i, row in enumerate(found)],
        "is not in this shard",
    ),
    (lambda found: [{**row, "sample": row["sample"] + 1} for row in found], "a sample 2, beyond"),
]


@pytest.mark.parametrize(("change", "said"), FOREIGN)
def test_foreign_rows_do_not_merge(make, tmp_path, change, said):
    make(tmp_path, "0/2")
    edited(make(tmp_path, "1/2"), change)
    with pytest.raises(InputError, match=said):
        score(tmp_path)
    assert not (tmp_path / "samples.jsonl").exists()


def test_a_merge_killed_before_its_shards_were_removed(make, whole, tmp_path):
    shards = [make(tmp_path, f"{index}/2") for index in (0, 1)]
    kept = [path.read_bytes() for path in shards]
    score(tmp_path)
    for path, content in zip(shards, kept, strict=True):
        path.write_bytes(content)
    score(tmp_path)
    assert shards_in(tmp_path) == []
    assert rows(tmp_path) == rows(whole)
    for path, content in zip(shards, kept, strict=True):
        path.write_bytes(content)
    edited(tmp_path / "samples.jsonl", lambda found: [{**row, "response": "?"} for row in found])
    with pytest.raises(InputError, match="other rows than the shards"):
        score(tmp_path)


def test_merging_holds_no_texts(tmp_path):
    problems, text = [f"p{i:03d}" for i in range(200)], "x" * 20_000
    generation = {"samples": 2, "fingerprints": {"task": "t"}}
    mark = fingerprint(generation["fingerprints"])
    for index in (0, 1):
        own = [(p, k) for k in (1, 0) for p in reversed(problems[index::2])]
        rows = [{"problem": p, "sample": k, "response": text, "fingerprint": mark} for p, k in own]
        (tmp_path / Shard(2, index).file).write_text("".join(json.dumps(r) + "\n" for r in rows))
    tracemalloc.start()
    try:
        assert merge_shards(tmp_path, generation, problems)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 500_000  # of 8,000,000 bytes of text
    merged = [(row["problem"], row["sample"]) for row in read_jsonl(tmp_path / "samples.jsonl")]
    assert merged == [(p, k) for p in problems for k in (0, 1)]


@pytest.mark.parametrize("text", ["1", "2/2", "-1/2", "0/0", "a/b", "1/2/3", ""])
def test_what_is_no_shard(text):
    with pytest.raises(InputError, match="shard"):
        Shard.parse(text)
