"""Members of a zip file of unknown origin: never unpacked to disk, never over a bound in memory.

inspect_ai writes its logs with Zstandard (method 93), which Python's zipfile doesn't know before
3.14; pyarrow decompresses it.
"""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any

import pyarrow

from oar_bench.errors import InputError
from oar_bench.importing.bounded import CHUNK, MAX_VALUE, MIB, TORN

ZSTANDARD = 93
MAX_MEMBERS = 2_000_000
_LOCAL = struct.Struct("<4s22xHH")  # signature, lengths of name and extra field


class Archive:
    """A zip file that is open for reading; `names` are those of its members, in their order."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("rb")
        try:
            self._zip = zipfile.ZipFile(self._file)
        except (zipfile.BadZipFile, ValueError, OSError, NotImplementedError) as error:
            self._file.close()
            raise InputError(f"no readable zip file ({error})", str(path), TORN) from error
        self._size = path.stat().st_size
        self.names = [member.filename for member in self._zip.infolist()]
        if len(self.names) > MAX_MEMBERS or len(set(self.names)) < len(self.names):
            self._file.close()
            what = "two members have one name" if len(self.names) <= MAX_MEMBERS else (
                f"over {MAX_MEMBERS} members"
            )  # fmt: skip
            raise InputError(what, str(path), "export the log again with its own tool")

    def read(self, name: str) -> bytes:
        """One member, decompressed and checked against its sum.

        Raises:
            InputError: it is larger than `MAX_VALUE`, whatever it claims, or it is damaged.
        """
        member = self._zip.getinfo(name)
        where = f"{self.path}: {name}"
        if member.file_size > MAX_VALUE or member.compress_size > MAX_VALUE:
            raise InputError(f"it unpacks to over {MAX_VALUE // MIB} MiB", where)
        if member.flag_bits & 1:
            raise InputError("it is encrypted", where)
        try:
            with self._stream(member) as stream:
                # what a member claims about its size binds nobody: stop at the claim
                data = _up_to(stream, member.file_size + 1)
        except (zipfile.BadZipFile, zlib.error, OSError, EOFError, NotImplementedError) as error:
            raise InputError(f"it can't be unpacked ({str(error)[:120]})", where, TORN) from error
        if len(data) != member.file_size or zlib.crc32(data) != member.CRC:
            raise InputError("it doesn't unpack to what the archive says", where, TORN)
        return data

    def _stream(self, member: zipfile.ZipInfo) -> Any:
        if member.compress_type != ZSTANDARD:
            return self._zip.open(member)
        self._file.seek(member.header_offset)
        head = self._file.read(_LOCAL.size)
        if len(head) < _LOCAL.size or not head.startswith(b"PK\x03\x04"):
            raise zipfile.BadZipFile("no local header")
        _, name, extra = _LOCAL.unpack(head)
        self._file.seek(name + extra, io.SEEK_CUR)
        raw = self._file.read(member.compress_size)
        return pyarrow.CompressedInputStream(pyarrow.BufferReader(raw), "zstd")

    def close(self) -> None:
        """Close the file; use it by `contextlib.closing`."""
        self._zip.close()
        self._file.close()


def _up_to(stream: Any, most: int) -> bytes:
    """At most so many bytes of a stream."""
    parts, left = [], most
    while left and (part := stream.read(min(CHUNK, left))):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)
