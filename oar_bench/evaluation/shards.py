"""Shards of an evaluation: each made on its own, perhaps on another machine, merged by file.

    oar-bench generate MODEL -t TASK --shard 0/2     EVAL/samples.shard-0-of-2.jsonl
    oar-bench generate MODEL -t TASK --shard 1/2     EVAL/samples.shard-1-of-2.jsonl
    oar-bench score EVAL                             EVAL/samples.jsonl, and the scores

Shard i of n has the problems whose number is i modulo n. Sampling is keyed, so n shards give the
rows that one run gives. Shards made in several folders are brought together by copying the files
into one; every row carries the fingerprint of its evaluation, and unlike ones don't merge.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oar_bench.errors import InputError
from oar_bench.identity import fingerprint
from oar_bench.records import dumps, read_jsonl, sync_folder

MERGED = "samples.jsonl"


@dataclass(frozen=True, order=True)
class Shard:
    """Part `index` (from 0) of `count`.

    >>> Shard.parse("1/4").file
    'samples.shard-1-of-4.jsonl'
    """

    count: int
    index: int

    @classmethod
    def parse(cls, text: str, where: str = "--shard") -> Shard:
        """A shard from `i/n`; InputError when it isn't one."""
        match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text.strip())
        if match is None:
            raise InputError(f"{text!r} is no shard", where, "use i/n, such as 0/4 to 3/4")
        index, count = int(match[1]), int(match[2])
        if not index < count:
            raise InputError(
                f"there is no shard {index} of {count}",
                where,
                f"use 0/{count} to {count - 1}/{count}",
            )  # fmt: skip
        return cls(count, index)

    @property
    def file(self) -> str:
        """Name of its file of samples."""
        return f"samples.shard-{self.index}-of-{self.count}.jsonl"

    def has(self, number: int) -> bool:
        """Whether the problem of that number is in this shard."""
        return number % self.count == self.index


def shards_in(folder: Path) -> list[Shard]:
    """The shards whose files lie in a folder."""
    found = []
    for path in folder.glob("samples.shard-*.jsonl"):
        match = re.fullmatch(r"samples\.shard-(\d+)-of-(\d+)\.jsonl", path.name)
        if match is not None:
            found.append(Shard(int(match[2]), int(match[1])))
    return sorted(found)


def check_unmixed(folder: Path, shard: Shard | None) -> None:
    """Refuse to write a shard beside a whole file or other shards, or a whole file beside shards.

    Raises:
        InputError: the folder was begun in another way.
    """
    present = shards_in(folder)
    if shard is None and present:
        raise InputError(
            f"this folder holds shards of {present[0].count}", str(folder),
            f"go on with --shard i/{present[0].count}, merge them by `oar-bench score`, "
            "or choose another --out",
        )  # fmt: skip
    if shard is None:
        return
    if (folder / MERGED).exists():
        raise InputError(
            "this folder holds an evaluation that is whole", str(folder),
            "leave --shard out to go on with it, or choose another --out",
        )  # fmt: skip
    others = [other for other in present if other.count != shard.count]
    if others:
        raise InputError(
            f"this folder holds shards of {others[0].count}, not of {shard.count}", str(folder),
            f"go on with --shard i/{others[0].count}, or choose another --out",
        )  # fmt: skip


def merge_shards(folder: Path, generation: Mapping[str, Any], problems: list[str]) -> bool:
    """Merge a folder's shards into samples.jsonl and remove them; False when there are none.

    Args:
        folder: of the evaluation.
        generation: its generation.json.
        problems: ids of its problems in order.

    Raises:
        InputError: a shard is missing, unfinished, or of another evaluation.
    """
    present = shards_in(folder)
    if not present:
        return False
    count = present[0].count
    if present[-1].count != count:
        raise InputError(
            f"shards of {count} and of {present[-1].count} are mixed", str(folder),
            "keep the files of one split",
        )  # fmt: skip
    missing = [i for i in range(count) if Shard(count, i) not in present]
    if missing:
        raise InputError(
            f"shard {missing[0]} of {count} is missing ({len(present)} are there)", str(folder),
            f"make it by `oar-bench generate --shard {missing[0]}/{count}`",
        )  # fmt: skip
    samples = int(generation["samples"])
    wanted = fingerprint(generation["fingerprints"])
    streams = [_rows(folder, shard, problems, samples, wanted) for shard in present]
    target = folder / MERGED
    if target.exists():  # merged before, and killed before the shards were removed
        for rows in streams:
            for _ in rows:
                pass
        _check_same(folder, present)
    else:
        neighbour = folder / f".{MERGED}.{os.getpid()}.tmp"
        try:
            with neighbour.open("w", encoding="utf-8") as file:
                for number in range(len(problems)):
                    file.writelines(dumps(row) + "\n" for row in next(streams[number % count]))
                file.flush()
                os.fsync(file.fileno())
            neighbour.replace(target)
        finally:
            neighbour.unlink(missing_ok=True)
        sync_folder(folder)
    for shard in present:
        (folder / shard.file).unlink()
    return True


def _rows(
    folder: Path, shard: Shard, problems: list[str], samples: int, wanted: str
) -> Iterator[list[dict[str, Any]]]:
    """The checked rows of a shard, problem by problem in order, samples in order."""
    path = folder / shard.file
    found: dict[str, dict[int, dict[str, Any]]] = {}
    for row in read_jsonl(path):
        if row.get("fingerprint") != wanted:
            raise InputError(
                f"a row of problem {row.get('problem')!r} is of another evaluation", str(path),
                "make this shard anew with the settings in generation.json",
            )  # fmt: skip
        of = found.setdefault(row["problem"], {})
        if row["sample"] in of:
            raise InputError(
                f"sample {row['sample']} of problem {row['problem']!r} occurs twice", str(path),
                "remove one of the two lines",
            )  # fmt: skip
        of[row["sample"]] = row
    own = [name for number, name in enumerate(problems) if shard.has(number)]
    made = sum(len(of) for of in found.values())
    if set(found) - set(own):
        raise InputError(
            f"problem {min(set(found) - set(own))!r} is not in this shard", str(path),
            "give each shard's file its own name again",
        )  # fmt: skip
    if made != len(own) * samples:
        raise InputError(
            f"the shard is unfinished: {made} of {len(own) * samples} samples", str(path),
            f"run `oar-bench generate --shard {shard.index}/{shard.count}` again",
        )  # fmt: skip
    for name in own:
        yield [found[name][k] for k in range(samples)]


def _check_same(folder: Path, shards: list[Shard]) -> None:
    """Refuse when samples.jsonl isn't the merge of the shards beside it."""
    whole = {json.dumps(row, sort_keys=True) for row in read_jsonl(folder / MERGED)}
    for shard in shards:
        for row in read_jsonl(folder / shard.file):
            if json.dumps(row, sort_keys=True) not in whole:
                raise InputError(
                    "samples.jsonl has other rows than the shards beside it", str(folder),
                    "keep either samples.jsonl or the shards",
                )  # fmt: skip
