"""Signals that end a run in good order: SIGTERM, of a scheduler or `kill`, and SIGINT, of Ctrl-C.

The first one is noted, and heeded as soon as the weights are those of the last finished step and
all its rows are written: before the next forward pass of a rollout, of log-probabilities or of
credit, or where the next phase begins. A checkpoint of that step is then made if there is none. So
nothing that was finished is lost, and an update goes through to its checkpoint. Of several
processes none can leave a phase alone: they stop where their next phase begins. A second signal
ends the program where it is; the run then goes on from its last checkpoint.
"""

from __future__ import annotations

import _thread
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from oar_bench.console import say
from oar_bench.errors import InputError
from oar_bench.training.processes import ALONE, Processes

SIGNALS = (signal.SIGINT, signal.SIGTERM)
SAME = 1.0
"""Seconds in which a further signal counts as the first: launchers pass on to their processes what
the terminal has sent to those already."""
UNBROKEN = ("checkpoint",)
"""Phases at whose beginning a run doesn't stop: what comes before them in a step is to be kept."""
CHANGING = ("update", "checkpoint")
"""Phases in which the weights aren't those of a finished step whose rows are all written."""


class Interrupted(BaseException):
    """A signal ended the work. No Exception, as KeyboardInterrupt is none.

    >>> error = Interrupted(signal.SIGTERM, "after step 7")
    >>> str(error), error.code
    ('stopped by SIGTERM after step 7', 143)
    """

    def __init__(self, number: int, left: str = "") -> None:
        self.number = number
        super().__init__(f"stopped by {signal.Signals(number).name} {left}".rstrip())

    @property
    def code(self) -> int:
        """The exit code of a program that this signal ended, as shells count."""
        return 128 + self.number


class _Broken(BaseException):
    """Breaks off a phase, on the way to the `stoppable` around it."""


class Stop:
    """Whether a signal came, and what is to be done before it is obeyed."""

    def __init__(self, leave: Callable[[], str], processes: Processes = ALONE) -> None:
        self.number = 0
        """The signal that came, or 0."""
        self.phase = ""
        self._leave, self._processes = leave, processes
        self._since = 0.0
        self._left = False

    def handle(self, number: int, frame: FrameType | None = None) -> None:
        """What a signal does: the first is noted, one more ends the program where it is."""
        now = time.monotonic()
        if not self.number:
            self.number, self._since = number, now
            if self._processes.is_first:
                # By a thread: the program may be within a print, which can't be entered twice.
                _thread.start_new_thread(say, (f"oar-bench: {self._waiting()}",))
        elif now - self._since >= SAME:
            raise Interrupted(number, "at once")

    def _waiting(self) -> str:
        """What the signal that came will wait for, in words."""
        waits = self.phase in CHANGING or self._processes.count > 1
        line = f"stopping after this phase ({self.phase})" if self.phase and waits else "stopping"
        return f"{line}; once more to stop at once, with the last checkpoint kept"

    def between(self) -> None:
        """Call it within phases, as often as may be: where they leave the weights alone the run
        stops here if a signal came, unless others have to stop with it.

        Raises:
            BaseException: that `stoppable` takes for the signal.
        """
        if self.number and self.phase not in CHANGING and self._processes.count == 1:
            raise _Broken

    def check(self, phase: str = "") -> None:
        """Call it where a phase is about to begin: there the run stops if a signal came.

        Raises:
            Interrupted: a signal came, and the run is left as it should be.
        """
        if phase not in UNBROKEN:
            heard = max(self._processes.gather(self.number))
            if heard:  # else one may have come meanwhile, for the next check
                if not self.number:  # the same may be on its way to this process
                    self._since = time.monotonic()
                self.number = heard
                self.obey()
        self.phase = phase

    def obey(self) -> None:
        """Leave the run as it should be, and end it.

        Raises:
            Interrupted: always.
        """
        self._left = True
        raise Interrupted(self.number, self._leave())

    @property
    def is_due(self) -> bool:
        """Whether a signal came that nothing was done for yet."""
        return bool(self.number) and not self._left


@contextmanager
def stoppable(leave: Callable[[], str], processes: Processes = ALONE) -> Iterator[Stop]:
    """Inside, a signal waits for the value's next `check` or `between`; afterwards the handlers
    from before are back.

    Signals that are ignored stay so (`nohup`), and outside the main thread nothing is changed. The
    run is left as it should be also where an InputError ends it in a phase that leaves the weights
    alone: an engine that samples for it has died.

    Args:
        leave: makes the run one that can go on; says in words where it was left.
        processes: those that stop together, when any of them got a signal. All of them call
            `check` for the same phases, and come to the end together.

    Raises:
        Interrupted: a signal came. Also where it ended a process that this one needs, and so made
            a phase fail that leaves the weights alone: schedulers signal all processes of a job.
    """
    stop = Stop(leave, processes)
    with _handling(stop.handle, SIGNALS):
        try:
            yield stop
        except (Exception, _Broken) as error:
            if stop.phase in CHANGING:
                raise
            if not stop.is_due:
                if isinstance(error, InputError) and processes.count == 1:
                    leave()
                raise
            if processes.count > 1:  # the others aren't here, to leave the run together
                raise Interrupted(stop.number, "at once") from error
            try:
                stop.obey()
            except Interrupted as interrupted:
                raise interrupted from error
        stop.check()


@contextmanager
def terminable() -> Iterator[None]:
    """Inside, SIGTERM raises Interrupted where the program is, as Ctrl-C does KeyboardInterrupt."""

    def handle(number: int, frame: FrameType | None) -> None:
        raise Interrupted(number)

    with _handling(handle, (signal.SIGTERM,)):
        yield


@contextmanager
def _handling(
    handle: Callable[[int, FrameType | None], None], numbers: tuple[signal.Signals, ...]
) -> Iterator[None]:
    """Have signals handled inside, unless they are ignored or this is not the main thread."""
    owner = os.getpid()

    def mine(number: int, frame: FrameType | None) -> None:
        if os.getpid() == owner:
            handle(number, frame)
        else:  # a fork of this process, which has nothing to finish
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    before = {}
    if threading.current_thread() is threading.main_thread():
        for number in numbers:
            # None: it is handled by something that isn't Python's.
            if signal.getsignal(number) not in (signal.SIG_IGN, None):
                before[number] = signal.signal(number, mine)
    try:
        yield
    finally:
        for number, known in before.items():
            signal.signal(number, known)
