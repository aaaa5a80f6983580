"""What a source holds: the files of a folder, told apart by what is in them and by their names."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from oar_bench.errors import InputError
from oar_bench.importing import inspect_log, light, lm_harness, table
from oar_bench.importing.bounded import MAX_FILES, members, rows_of
from oar_bench.importing.found import Found, Options

FORMATS = (
    "lm-eval's results_*.json and samples_*.jsonl, lighteval's results_*.json and "
    "details_*.parquet, inspect_ai's .eval and .json, a .csv or .json of numbers"
)  # fmt: skip
MAX_WORDS = 1000
_ENDINGS = (".json", ".jsonl", ".eval", ".parquet", ".csv")


def discover(sources: list[Path], options: Options) -> list[Found]:
    """Every result in the sources, each a file or a folder that is searched.

    Raises:
        InputError: a source is absent or of no known format, a file is broken, or two results are
            of one model on one task.
    """
    found: list[Found] = []
    for source in sources:
        files = list(_files(source))
        named = not source.is_dir()
        here = _read(files, options, named=named)
        if not here and not options.tasks:
            raise InputError("nothing here can be imported", str(source), f"read are {FORMATS}")
        found += [one for one in here if options.wants(one.task)]
    if missing := [task for task in options.tasks if task not in {one.task for one in found}]:
        raise InputError(f"no results of task {missing[0]!r}", "--tasks")
    _refuse_twins(found)
    return found


@contextmanager
def in_shape(where: str) -> Iterator[None]:
    """Tells in one line when a file's fields are of other types than its tool writes."""
    try:
        yield
    except (TypeError, ValueError, KeyError, AttributeError, IndexError, RecursionError) as error:
        line = " ".join(str(error).split())[:100]
        raise InputError(
            f"not in the shape that its tool writes ({type(error).__name__}: {line})", where
        ) from error


def _files(source: Path) -> Iterator[Path]:
    """The files of a source; of one results file also those of its samples."""
    if source.is_file():
        yield source
        yield from _companions(source)
        return
    if not source.is_dir():
        raise InputError("no such file or folder", str(source))
    count = 0
    # links to folders are not followed: they may lead round in circles
    for folder, inner, names in os.walk(source):
        inner.sort()
        for name in sorted(names):
            path = Path(folder) / name
            if path.suffix in _ENDINGS and path.is_file() and not name.startswith("."):
                count += 1
                if count > MAX_FILES:
                    raise InputError(
                        f"over {MAX_FILES} files", str(source), "give a folder of one evaluation"
                    )
                yield path


def _companions(path: Path) -> Iterator[Path]:
    """What lies beside a results file, or beside samples, and has its date."""
    for pattern in (lm_harness.RESULTS, lm_harness.SAMPLES):
        if match := pattern.fullmatch(path.name):
            date = match["date"]
            for other in sorted(path.parent.iterdir()):
                samples = lm_harness.SAMPLES.fullmatch(other.name)
                results = lm_harness.RESULTS.fullmatch(other.name)
                of = samples if pattern is lm_harness.RESULTS else results
                if of and of["date"] == date and other != path and other.is_file():
                    yield other
    if match := light.RESULTS.fullmatch(path.name):
        parts = path.resolve().parts
        if "results" in parts[:-1]:
            place = len(parts) - 1 - parts[::-1].index("results")
            details = Path(*parts[:place], "details", *parts[place + 1 : -1], match["date"])
            if details.is_dir():
                yield from sorted(p for p in details.iterdir() if light.DETAILS.fullmatch(p.name))


def _read(files: list[Path], options: Options, *, named: bool) -> list[Found]:
    """The results in the files of one source.

    A file that isn't of any known format is passed over in a folder, and refused by itself.
    """
    found: list[Found] = []
    results: dict[Path, dict[str, Any]] = {}
    samples: dict[tuple[Path, str], dict[str, Path]] = defaultdict(dict)
    details: dict[str, dict[str, Path]] = defaultdict(dict)
    loose: list[Path] = []
    for number, path in enumerate(files):
        with in_shape(str(path)):
            if path.suffix == ".eval":
                found += inspect_log.read_archive(path, options)
            elif path.suffix == ".csv" and (named or table.is_table(path)):
                found += table.read_csv(path, options)
            elif path.suffix == ".parquet" and (match := light.DETAILS.fullmatch(path.name)):
                details[match["date"]][light.task_of(path)] = path
            elif match := lm_harness.SAMPLES.fullmatch(path.name):
                samples[path.parent.resolve(), match["date"]][match["task"]] = path
                loose.append(path)
            elif path.suffix == ".json":
                found += _of_json(path, options, results, named=named and number == 0)
            elif named and path.suffix == ".jsonl":
                next(rows_of(path), None)
                found += lm_harness.read_samples(path, options)
            elif named:
                raise InputError("of no known format", str(path), f"read are {FORMATS}")
    used: set[Path] = set()
    for path, top in results.items():
        with in_shape(str(path)):
            found += _of_results(path, top, options, samples, details, used)
    for path in loose:
        if path not in used:
            with in_shape(str(path)):
                found += lm_harness.read_samples(path, options)
    if named and details and not results:
        raise InputError(
            "details without their results", str(files[0]),
            "give lighteval's results_*.json, or the folder that holds both",
        )  # fmt: skip
    return found


def _of_json(
    path: Path, options: Options, results: dict[Path, dict[str, Any]], *, named: bool
) -> list[Found]:
    """A log or numbers at once; results of lm-eval and lighteval are kept for their samples."""
    if _begins_with(path, b"["):
        return table.read_json(path, options) if named else []
    top: dict[str, Any] = {}
    for key, value in members(path, "samples"):
        top.setdefault(key, None if key == "samples" else value)
    if inspect_log.is_log(top):
        return inspect_log.read_json(path, options)
    if lm_harness.is_results(top) or light.is_results(top):
        results[path] = top
        return []
    return table.read_json(path, options) if named else []


def _begins_with(path: Path, sign: bytes) -> bool:
    with path.open("rb") as file:
        return file.read(4096).lstrip().startswith(sign)


def _of_results(
    path: Path, top: dict[str, Any], options: Options,
    samples: dict[tuple[Path, str], dict[str, Path]], details: dict[str, dict[str, Path]],
    used: set[Path],
) -> list[Found]:  # fmt: skip
    if lm_harness.is_results(top):
        match = lm_harness.RESULTS.fullmatch(path.name)
        own = samples.get((path.parent.resolve(), match["date"]), {}) if match else {}
        used.update(own.values())
        return lm_harness.read_results(path, top, own, options)
    match = light.RESULTS.fullmatch(path.name)
    of = details.get(match["date"], {}) if match else {}
    return light.read_results(path, top, of, options)


def _refuse_twins(found: list[Found]) -> None:
    seen: dict[tuple[str, str], Found] = {}
    for one in found:
        if max(len(one.model), len(one.task)) > MAX_WORDS:
            raise InputError(
                f"a name of a model or task is over {MAX_WORDS} characters", str(one.files[0])
            )
        twin = seen.setdefault((one.model, one.task), one)
        if twin is not one:
            names = {twin.files[0].name, one.files[0].name}
            raise InputError(
                f"two results of {one.model} on {one.task} (in {' and '.join(sorted(names))})",
                str(one.files[0].parent),
                "give one of the files, or import each into an --out of its own" if len(names) > 1
                else "keep one of its rows; --model names all of them",
            )  # fmt: skip
