"""Worker processes for the symbolic stage: lazy, killable, replaced after a kill.

A worker is a separate interpreter that talks JSON lines over pipes. The parent waits for a reply
with `select` until the deadline and then kills the process, so no signal, thread or cooperation of
the worker is needed. Nothing is forked, and a fork of the parent starts workers of its own.
"""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from oar_bench.answers.limits import WORKER_MEMORY_BYTES

START_SECONDS = 60.0  # importing sympy on a busy machine
COLD_SHARE = 0.6  # the share of a deadline that a question has after a worker's start
PATIENCE = 0.2  # the share of a deadline after which a spare worker starts to warm up


@dataclass(frozen=True)
class Reply:
    """What the symbolic stage said: a worker's status, or "timeout" or "died"."""

    status: str
    detail: str = ""


class Child:
    """One worker process and the pipe to it."""

    def __init__(self) -> None:
        root = str(Path(__file__).resolve().parents[2])
        env = dict(os.environ)
        env["PYTHONPATH"] = os.pathsep.join(p for p in (root, env.get("PYTHONPATH", "")) if p)
        # A worker is small and single-threaded, whatever the parent does with its cores.
        env["OMP_NUM_THREADS"] = "1"
        self.process = subprocess.Popen(
            [sys.executable, "-m", "oar_bench.answers.worker_main", str(WORKER_MEMORY_BYTES)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=env,
            start_new_session=True,
        )
        self.owner = os.getpid()
        self.ready = False
        self.buffer = b""

    @property
    def usable(self) -> bool:
        """Whether this process owns the child and it runs."""
        return self.owner == os.getpid() and self.process.poll() is None

    def send(self, request: dict[str, object]) -> bool:
        """Writes one request; False if the child is gone."""
        if self.process.stdin is None:
            return False
        try:
            self.process.stdin.write(json.dumps(request).encode("ascii") + b"\n")
            self.process.stdin.flush()
        except (BrokenPipeError, OSError):
            return False
        return True

    def line(self, until: float) -> bytes | None:
        """The next line of output, or None at the time `until` or the end of output."""
        if self.process.stdout is None:
            return None
        descriptor = self.process.stdout.fileno()
        with selectors.DefaultSelector() as selector:
            selector.register(descriptor, selectors.EVENT_READ)
            while b"\n" not in self.buffer:
                left = until - time.monotonic()
                if left <= 0 or not selector.select(left):
                    return None
                chunk = os.read(descriptor, 65536)
                if not chunk:
                    return None
                self.buffer += chunk
        line, _, self.buffer = self.buffer.partition(b"\n")
        return line

    def kill(self) -> None:
        """Ends the process; a forked copy of the parent only lets go of it."""
        if self.owner == os.getpid():
            self.process.kill()
            self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except BrokenPipeError:
                    pass  # the reader is gone, as intended


class Worker:
    """A child, and a spare one that warms up as soon as a question takes long.

    Not thread-safe: the pool lends a worker to one thread at a time.
    """

    def __init__(self) -> None:
        self.child: Child | None = None
        self.spare: Child | None = None
        self.serial = 0

    def stop(self) -> None:
        """Kills the processes; safe to call at any time."""
        children, self.child, self.spare = (self.child, self.spare), None, None
        for child in children:
            if child is not None:
                child.kill()

    def _replace(self) -> None:
        """Kills the child; the spare takes its place."""
        if self.child is not None:
            self.child.kill()
        self.child, self.spare = self.spare, None

    def ask(self, answer: str, gold: str, seconds: float) -> Reply:
        """A verdict within `seconds` of the worker being ready; kills the child otherwise."""
        if self.child is not None and not self.child.usable:
            self._replace()
        if self.child is None or not self.child.usable:
            self.stop()
            self.child = Child()
        child = self.child
        asked = time.monotonic()
        if not child.ready:
            if child.line(time.monotonic() + START_SECONDS) is None:
                self._replace()
                return Reply("died", "the worker did not start")
            child.ready = True
            # rule: of the deadline, what the start took is spent, but for a share that is enough
            # for all but a few questions
            seconds = max(seconds * COLD_SHARE, seconds - (time.monotonic() - asked))
        self.serial += 1
        if not child.send({"id": self.serial, "answer": answer, "gold": gold}):
            self._replace()
            return Reply("died", "the worker ended")
        start = time.monotonic()
        line = child.line(start + seconds * PATIENCE)
        if line is None and child.process.poll() is None:
            if self.spare is None:
                self.spare = Child()
            line = child.line(start + seconds)
        if line is None:
            ended = child.process.poll() is not None
            self._replace()
            return Reply("died" if ended else "timeout")
        reply = json.loads(line)
        if reply.get("id") != self.serial:
            self._replace()
            return Reply("died", "a reply to another question")
        return Reply(str(reply["status"]), str(reply.get("error", "")))


class WorkerPool:
    """Lends `size` workers to threads; starts each at its first use."""

    def __init__(self, size: int) -> None:
        self.size = max(1, size)
        self._condition = threading.Condition()
        self._idle = [Worker() for _ in range(self.size)]
        self._workers = list(self._idle)
        self._owner = os.getpid()
        self._closed = False

    def ask(self, answer: str, gold: str, seconds: float) -> Reply:
        """Sends one question to a free worker and waits for its reply."""
        self._after_fork()
        with self._condition:
            while not self._idle and not self._closed:
                self._condition.wait()
            if self._closed:
                raise RuntimeError("the grader is closed")
            worker = self._idle.pop()
        try:
            return worker.ask(answer, gold, seconds)
        finally:
            with self._condition:
                if self._closed:
                    worker.stop()
                else:
                    self._idle.append(worker)
                self._condition.notify()

    def _after_fork(self) -> None:
        """A forked copy of the parent must not share pipes: it starts afresh."""
        if self._owner != os.getpid():
            self._condition = threading.Condition()
            self._idle = [Worker() for _ in range(self.size)]
            self._workers = list(self._idle)
            self._owner = os.getpid()

    def close(self) -> None:
        """Kills the idle workers now and the busy ones when they return."""
        if self._owner != os.getpid():
            return
        with self._condition:
            self._closed = True
            idle, self._idle = self._idle, []
            self._condition.notify_all()
        for worker in idle:
            worker.stop()
