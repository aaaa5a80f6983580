"""Shards of an evaluation: each made on its own, perhaps on another machine, merged by file.

    oar-bench generate MODEL -t TASK --shard 0/2     EVAL/samples.shard-0-of-2.jsonl
    oar-bench generate MODEL -t TASK --shard 1/2     EVAL/samples.shard-1-of-2.jsonl
    oar-bench score EVAL                             EVAL/samples.jsonl, and the scores

Shard i of n has the problems whose number is i modulo n. Sampling is keyed, so n shards give the
rows that one run gives. Shards made in several folders are brought together by copying the files
into one; every row carries the fingerprint of its evaluation, and unlike ones don't merge. Merging
holds where each row lies, 8 bytes a sample, and copies the lines; no text stays in memory.
"""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, BinaryIO

from oar_bench.errors import InputError
from oar_bench.identity import fingerprint
from oar_bench.records import read_jsonl, read_placed, write_parts

MERGED = "samples.jsonl"
ABSENT = -1


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
    placed = [_places(folder, shard, problems, samples, wanted) for shard in present]
    target = folder / MERGED
    with ExitStack() as stack:
        files = [stack.enter_context((folder / shard.file).open("rb")) for shard in present]
        lines = _merged(files, placed, problems)
        if target.exists():  # merged before, and killed before the shards were removed
            _check_same(folder, lines)
        else:
            write_parts(target, lines)
    for shard in present:
        (folder / shard.file).unlink()
    return True


Places = dict[str, "array[int]"]
"""By problem: where in the shard's file the lines of its samples begin, in bytes, by sample."""


def _places(
    folder: Path, shard: Shard, problems: list[str], samples: int, wanted: str
) -> Places:  # fmt: skip
    """Where the samples of a shard lie, each row checked: 8 bytes a sample, never their texts."""
    path = folder / shard.file
    own = [name for number, name in enumerate(problems) if shard.has(number)]
    found = {name: array("q", [ABSENT]) * samples for name in own}
    made = 0
    for place, row in read_placed(path):
        problem, sample = row.get("problem"), row.get("sample")
        if row.get("fingerprint") != wanted:
            raise InputError(
                f"a row of problem {problem!r} is of another evaluation", str(path),
                "make this shard anew with the settings in generation.json",
            )  # fmt: skip
        if not isinstance(problem, str) or problem not in found:
            raise InputError(
                f"problem {problem!r} is not in this shard", str(path),
                "give each shard's file its own name again",
            )  # fmt: skip
        if not isinstance(sample, int) or not 0 <= sample < samples:
            raise InputError(
                f"problem {problem!r} has a sample {sample!r}, beyond 0 to {samples - 1}",
                str(path), "make this shard anew with the settings in generation.json",
            )  # fmt: skip
        if found[problem][sample] != ABSENT:
            raise InputError(
                f"sample {sample} of problem {problem!r} occurs twice", str(path),
                "remove one of the two lines",
            )  # fmt: skip
        found[problem][sample] = place
        made += 1
    if made != len(own) * samples:
        raise InputError(
            f"the shard is unfinished: {made} of {len(own) * samples} samples", str(path),
            f"run `oar-bench generate --shard {shard.index}/{shard.count}` again",
        )  # fmt: skip
    return found


def _merged(
    files: Sequence[BinaryIO], placed: Sequence[Places], problems: list[str]
) -> Iterator[bytes]:
    """The lines of all shards, problem by problem in order, samples in order."""
    for number, name in enumerate(problems):
        file = files[number % len(files)]
        for place in placed[number % len(files)][name]:
            file.seek(place)
            yield file.readline()


def _check_same(folder: Path, lines: Iterable[bytes]) -> None:
    """Refuse when samples.jsonl isn't the merge of the shards beside it."""
    pairs = zip_longest(read_jsonl(folder / MERGED), lines)
    if any(line is None or row != json.loads(line) for row, line in pairs):
        raise InputError(
            "samples.jsonl has other rows than the shards beside it", str(folder),
            "keep either samples.jsonl or the shards",
        )  # fmt: skip
