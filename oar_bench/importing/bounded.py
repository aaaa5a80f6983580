"""Reading files of unknown origin: within bounds, as streams, each fault told in one line."""

from __future__ import annotations

import codecs
import hashlib
import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from oar_bench.errors import InputError

MIB = 1 << 20
MAX_VALUE = 256 * MIB
"""Bytes of one JSON value that is held in memory whole: a file of results, a logged sample."""
MAX_LINE = 64 * MIB
MAX_FILES = 20_000
MAX_NAME = 100
CHUNK = MIB

TORN = "the file is cut off in the middle: copy it again"
_UNSAFE = re.compile(r"[^A-Za-z0-9._+-]+")
_DECODER = json.JSONDecoder()
_DELIMITERS = " \t\r\n,:]}"


def folder_name(text: str) -> str:
    """A name out of a foreign file as the name of one folder: no separators, no dots in front.

    >>> folder_name("Qwen/Qwen2.5-1.5B"), folder_name("../../etc/passwd"), folder_name("/")
    ('Qwen__Qwen2.5-1.5B', 'etc__passwd', 'unnamed')
    """
    parts = [_UNSAFE.sub("-", part).strip(".-") for part in re.split(r"[/\\]+", text)]
    # the end of a long path says more than its beginning
    return "__".join(part for part in parts if part)[-MAX_NAME:].lstrip(".-_") or "unnamed"


def digest(path: Path) -> dict[str, Any]:
    """Name, size in bytes and sha256 of a file, read as a stream."""
    with path.open("rb") as file:
        total = hashlib.file_digest(file, "sha256").hexdigest()
    return {"name": path.name, "bytes": path.stat().st_size, "sha256": total}


def finite(value: Any, what: str, where: str) -> float:
    """A number that is one; InputError for text, true or false, NaN and the infinities.

    >>> finite(float("nan"), "acc", "results.json")
    Traceback (most recent call last):
    ...
    oar_bench.errors.InputError: results.json: acc is nan, no finite number
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"{what} is {_short(value)}, no number", where)
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise InputError(f"{what} is {_short(value)}, no finite number", where)
    return number


def text_of(value: Any, what: str, where: str) -> str:
    """A text that is one; InputError for anything else."""
    if not isinstance(value, str):
        raise InputError(f"{what} is {_short(value)}, no text", where)
    return value


def mapping(value: Any, what: str, where: str) -> dict[str, Any]:
    """A JSON object that is one; InputError for anything else."""
    if not isinstance(value, dict):
        raise InputError(f"{what} is {_short(value)}, no object", where)
    return value


def inside(value: Any, *keys: str) -> Any:
    """What lies under nested keys; None where any of them is absent or holds no object.

    >>> inside({"a": {"b": 1}}, "a", "b"), inside({"a": [1]}, "a", "b")
    (1, None)
    """
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _short(value: Any) -> str:
    text = f"{value}" if isinstance(value, float) else repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def rows_of(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a file of JSON lines with their line numbers (1-based), as a stream.

    Unlike our own files, which a kill may leave with half a last line, a finished file of another
    tool has none: it is refused then.

    Raises:
        InputError: a line is too long, cut off, or holds no JSON object.
    """
    with path.open("rb") as file:
        number = 0
        while line := file.readline(MAX_LINE + 1):
            number += 1
            if len(line) > MAX_LINE:
                raise InputError(f"line {number} is over {MAX_LINE // MIB} MiB", str(path))
            if not line.strip():
                continue
            row = parsed(line, f"line {number}", str(path), torn=not line.endswith(b"\n"))
            yield number, mapping(row, f"line {number}", str(path))


def parsed(data: bytes, what: str, where: str, *, torn: bool = False) -> Any:
    """JSON in memory as a value; InputError, saying what is wrong, when it is none."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{what} is no JSON ({_why(error)})", where, TORN if torn else "") from (
            error
        )


def whole(path: Path) -> Any:
    """A JSON file of bounded size as a value."""
    size = path.stat().st_size
    if size > MAX_VALUE:
        raise InputError(f"{size / MIB:.0f} MiB, over {MAX_VALUE // MIB} MiB", str(path))
    return parsed(path.read_bytes(), "the file", str(path))


def _why(error: Exception) -> str:
    return "nested too deeply" if isinstance(error, RecursionError) else str(error)[:120]


def members(path: Path, each: str) -> Iterator[tuple[str, Any]]:
    """The top-level members of a JSON object in a file of any size, as (key, value).

    A list under the key `each` comes item by item, every item under that key, so that memory
    holds one of them at a time.

    Raises:
        InputError: no JSON object, cut off, or one value over `MAX_VALUE`.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "log.json"
    >>> _ = file.write_text('{"a": {"b": 1}, "samples": [{"id": 1}, {"id": 2}]}')
    >>> list(members(file, "samples"))
    [('a', {'b': 1}), ('samples', {'id': 1}), ('samples', {'id': 2})]
    """
    with path.open("rb") as file:
        yield from _Text(file, path).members(each)


class _Text:
    """A JSON text read in chunks: what was used up is dropped."""

    def __init__(self, file: BinaryIO, path: Path) -> None:
        self._file, self._path = file, path
        self._decode = codecs.getincrementaldecoder("utf-8")()
        self._text, self._place, self._ended = "", 0, False

    def members(self, each: str) -> Iterator[tuple[str, Any]]:
        self._expect("{")
        if self._peek() != "}":
            while True:
                key = text_of(self._value(), "a key", str(self._path))
                self._expect(":")
                if key == each and self._peek() == "[":
                    yield from ((key, item) for item in self._items())
                else:
                    yield key, self._value()
                if not self._more("}"):
                    break
        self._expect("}")
        if self._peek():
            raise InputError("there is more after its JSON object", str(self._path))

    def _items(self) -> Iterator[Any]:
        self._expect("[")
        if self._peek() != "]":
            while True:
                yield self._value()
                if not self._more("]"):
                    break
        self._expect("]")

    def _more(self, end: str) -> bool:
        """Whether another item follows (its comma is read over)."""
        if self._peek() == end:
            return False
        self._expect(",")
        return True

    def _expect(self, sign: str) -> None:
        found = self._peek()
        if found != sign:
            what = f"{found!r} stands where {sign!r} is expected" if found else "it ends early"
            raise InputError(f"no JSON object ({what})", str(self._path), "" if found else TORN)
        self._place += 1

    def _peek(self) -> str:
        """The next character that is no white space; empty at the end."""
        while True:
            while self._place < len(self._text):
                if self._text[self._place] not in " \t\r\n":
                    return self._text[self._place]
                self._place += 1
            if not self._fill(CHUNK):
                return ""

    def _value(self) -> Any:
        self._peek()
        while True:
            held = len(self._text) - self._place
            try:
                value, end = _DECODER.raw_decode(self._text, self._place)
                # what a number or a word goes on with may not be there yet: 1 of 1.5
                whole = end < len(self._text) and self._text[end] in _DELIMITERS
                used = end - self._place
                if whole or not self._fill(max(CHUNK, held)):
                    self._place += used
                    return value
            except (ValueError, RecursionError) as error:
                # either the value isn't whole yet, or it is broken: more text tells
                if isinstance(error, RecursionError) or not self._fill(max(CHUNK, held)):
                    raise InputError(
                        f"no JSON ({_why(error)})", str(self._path), TORN if self._ended else ""
                    ) from error
            if held > MAX_VALUE:
                raise InputError(
                    f"one of its values is no JSON, or over {MAX_VALUE // MIB} MiB",
                    str(self._path),
                )

    def _fill(self, size: int) -> bool:
        """Take in about `size` more bytes; False at the end of the file."""
        if self._ended:
            return False
        data = self._file.read(size)
        self._ended = not data
        try:
            text = self._decode.decode(data, final=self._ended)
        except UnicodeDecodeError as error:
            raise InputError("not UTF-8 text", str(self._path)) from error
        self._text = self._text[self._place :] + text
        self._place = 0
        return bool(data)
