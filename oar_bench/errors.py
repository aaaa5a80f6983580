"""The one way oar-bench says that an input can't be used."""

from __future__ import annotations

import errno


class InputError(Exception):
    """Bad input, told in one line: what is wrong, where, and how to mend it.

    The command line prints it and exits with code 2. Library callers may catch it.

    >>> str(InputError("unknown method 'oar-x'", "--method", "use one of grpo, oar-p"))
    "--method: unknown method 'oar-x'; use one of grpo, oar-p"
    """

    def __init__(self, message: str, where: str = "", mend: str = "") -> None:
        self.message, self.where, self.mend = message, where, mend
        line = f"{where}: {message}" if where else message
        super().__init__(f"{line}; {mend}" if mend else line)


def not_installed(error: ImportError, where: str, extra: str) -> InputError:
    """That a package of one of the extras is missing, and how to get it.

    >>> str(not_installed(ImportError(name="peft"), "model.lora", "lora"))
    "model.lora: peft is not installed; install it with `python -m pip install 'oar-bench[lora]'`"
    """
    return InputError(
        f"{error.name} is not installed", where,
        f"install it with `python -m pip install 'oar-bench[{extra}]'`",
    )  # fmt: skip


def nearest(name: str, known: list[str]) -> str:
    """A mend for a mistyped name: the nearest known name, or the list of them.

    >>> nearest("oar_p", ["grpo", "oar-p", "oar-g"])
    "did you mean 'oar-p'?"
    >>> nearest("zzz", ["grpo", "oar-p"])
    'use one of grpo, oar-p'
    >>> nearest("OAR_P", ["grpo", "oar-p", "oar-g"])
    "did you mean 'oar-p'?"
    """
    import difflib

    cases = {word.lower(): word for word in known}
    close = difflib.get_close_matches(name.lower(), list(cases), n=1, cutoff=0.6)
    return f"did you mean '{cases[close[0]]}'?" if close else f"use one of {', '.join(known)}"


AGAIN = "run the same command again (train: with --resume) to go on"

# What the operating system says when the fault is the user's folder or disk and not ours.
OS_MENDS = {
    errno.ENOSPC: f"free some disk space and {AGAIN}",
    errno.EDQUOT: f"free some of your disk quota and {AGAIN}",
    errno.ENOENT: "a folder of that path is missing or can't be made: choose another",
    errno.EACCES: "check the permissions of that path",
    errno.EPERM: "check the permissions of that path",
    errno.EROFS: "choose a folder that can be written with --out",
    errno.ENOTDIR: "a part of that path is a file: choose another folder",
    errno.EISDIR: "a file is expected there, not a folder",
    errno.EEXIST: "a file stands where a folder is needed: choose another --out",
    errno.ENAMETOOLONG: "choose a shorter path",
}


def os_line(error: OSError) -> str | None:
    """An error of the operating system in one line with its mend; None where it isn't the user's.

    >>> os_line(OSError(errno.EROFS, "Read-only file system", "/cdrom/run"))
    '/cdrom/run: read-only file system; choose a folder that can be written with --out'
    """
    if error.errno not in OS_MENDS:
        return None
    where = str(error.filename) if error.filename else "writing"
    return f"{where}: {(error.strerror or str(error)).lower()}; {OS_MENDS[error.errno]}"
