"""Every command of the documents is run, in order, small, in one folder; or says why it isn't.

The run is one test, so that it is one worker's load, and tells of every command that failed.
"""

from __future__ import annotations

import re
import runpy
import shlex
import sys
import traceback
from pathlib import Path

import pytest
import torch

from tests.docs.commands import DOCUMENTS, in_blocks, in_prose
from tests.docs.place import furnish
from tests.docs.plan import INSTEAD, NOT_RUN, SIZED, is_name, sized
from tests.engines.fake_server import running

BEFORE = [
    "oar-bench check evaluations/model --baseline model.json --update --reason 'for the documents'",
    "oar-bench import lm-eval-output --out imported --model again",
]


TEXTS = [path.read_text("utf-8") for path in DOCUMENTS]
LINES = dict.fromkeys(line for text in TEXTS for line in [*in_blocks(text), *in_prose(text)])
IN_BLOCKS = {line for text in TEXTS for line in in_blocks(text)}


def to_run() -> list[str]:
    """Every command line once, in the order of the documents, blocks before prose."""
    return [line for line in LINES
            if line not in NOT_RUN and (line in IN_BLOCKS or not is_name(line))]  # fmt: skip


def test_the_plan_holds_no_line_that_the_documents_lack():
    assert [line for line in [*NOT_RUN, *INSTEAD] if line not in LINES] == []
    lines = [INSTEAD.get(line, line) for line in to_run()]
    assert [p for p, _ in SIZED if not any(re.search(p, line) for line in lines)] == []
    assert not NOT_RUN.keys() & INSTEAD.keys()


def test_commands_are_found_as_they_stand():
    text = (
        "a `x`\n```\n$ oar-bench a \\\n    --b 'c d'  # e\nprinted\n```\nsee `oar-bench\ndata R`."
    )
    assert in_blocks(text) == ["oar-bench a --b 'c d' # e"]
    assert in_prose(text) == ["oar-bench data R"]
    assert len(to_run()) > 50


@pytest.mark.parametrize("line", NOT_RUN, ids=lambda line: line[:60])
def test_what_is_not_run_cannot_be(line):
    reason = NOT_RUN[line]
    assert reason.holds(line), f"not so: {reason.why}"


def done(words, call):
    """Run one command as a process would, in this one; what went wrong, or None."""
    if words[0] == "oar-bench":
        found = call(*words[1:])
        return None if found.returncode == 0 else f"exit {found.returncode}: {found.stderr}"
    assert words[0] == "python", words
    before = sys.argv
    try:
        sys.argv = words[1:]
        runpy.run_path(words[1], run_name="__main__")
    except SystemExit as error:
        return f"exit {error.code}" if error.code else None
    except Exception:  # noqa: BLE001 - whatever it is, it is told beside the others
        return traceback.format_exc()
    finally:
        sys.argv = before
    return None


@pytest.mark.slow
def test_every_command_runs(call, smoke, start, byte_model, tmp_path, monkeypatch):
    furnish(tmp_path, smoke, start, byte_model)
    monkeypatch.chdir(tmp_path)
    threads, failed = torch.get_num_threads(), {}
    with running() as server:
        server.models = [{"id": "MODEL-NAME"}]
        names = {"URL": server.url}
        for line in [*BEFORE, *to_run()]:
            for part in sized(line).split("&&"):
                words = shlex.split(re.sub(r"\$([A-Z]+)", lambda m: names[m[1]], part),
                                    comments=" #" in part)  # fmt: skip
                while words and re.fullmatch(r"[A-Z]+=.*", words[0]):
                    name, _, names[name] = words.pop(0).partition("=")
                if words[1:4] == ["-m", "pip", "install"] or not words:
                    continue
                if wrong := done(words, call):
                    failed[line] = f"{shlex.join(words)}\n    {wrong}"
    torch.set_num_threads(threads)
    assert not failed, "\n".join(f"{line}\n  run as {what}" for line, what in failed.items())
    assert Path("REPORT/index.html").is_file()
