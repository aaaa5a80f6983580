"""Progress bars: what a file or a task is called is shown as it is, and commands no terminal."""

from __future__ import annotations

import io

import pytest

from oar_bench.console import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("stream", [Terminal, io.StringIO])
def test_names_are_neither_markup_nor_commands(monkeypatch, stream):
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "200")
    drawn = stream()
    monkeypatch.setattr("sys.stderr", drawn)
    with Progress().stage("weigh [bold]x\x1b]0;pwn\x07.jsonl", 2) as tick:
        tick(2, "[/] [red]of \x1b[5m")
    shown = drawn.getvalue()
    assert "weigh [bold]x\\x1b]0;pwn\\x07.jsonl" in shown
    assert "\x1b]" not in shown
    assert "\x1b[5m" not in shown
    assert "[/] [red]of" in shown
