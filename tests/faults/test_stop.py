"""What a signal's note does at the moments of a step, in one process and in several."""

from __future__ import annotations

import os
import signal

import pytest

from oar_bench.errors import InputError
from oar_bench.training import interrupts
from oar_bench.training.interrupts import Interrupted, Stop, stoppable
from oar_bench.training.processes import ALONE, Processes

INT, TERM = signal.SIGINT, signal.SIGTERM


def test_signals_in_quick_succession_are_one():
    """A launcher passes Ctrl-C on to processes that had it from the terminal."""
    stop = Stop(lambda: "left")
    stop.handle(INT)
    stop.handle(TERM)
    with pytest.raises(Interrupted, match="stopped by SIGINT left"):
        stop.check("rollout")


def test_a_checkpoint_is_not_put_off():
    stop = Stop(lambda: "left")
    stop.handle(TERM)
    stop.check("checkpoint")
    stop.between()
    with pytest.raises(Interrupted):
        stop.check("update")


class Second(Processes):
    """The second of two processes; `heard` is what the first one says, `meanwhile` what comes to
    this one while it listens."""

    rank, count = 1, 2

    def __init__(self, heard: int = 0) -> None:
        self.heard = heard
        self.meanwhile = lambda: None

    def gather(self, value):
        self.meanwhile()
        return [self.heard, value]


def test_all_processes_stop_when_one_got_the_signal():
    left = []
    with pytest.raises(Interrupted) as caught, stoppable(
        lambda: left.append(1) or "here", Second(heard=TERM)
    ) as stop:  # fmt: skip
        stop.check("rollout")
    assert (caught.value.code, left) == (143, [1])


def test_a_signal_to_all_processes_is_one_also_where_another_heard_it_first():
    stop = Stop(lambda: stop.handle(TERM) or "here", Second(heard=TERM))
    with pytest.raises(Interrupted, match="SIGTERM here"):
        stop.check("rollout")


def test_all_processes_stop_at_the_end_too_when_one_got_the_signal():
    """In its last phase: to leave is a conversation, which none can hold alone."""
    with pytest.raises(Interrupted, match="SIGTERM here"), stoppable(
        lambda: "here", Second(heard=TERM)
    ) as stop:  # fmt: skip
        stop.check("checkpoint")


def test_a_signal_is_not_lost_while_a_process_listens_to_the_others():
    second = Second()
    stop = Stop(lambda: "left", second)
    second.meanwhile = lambda: None if stop.number else stop.handle(TERM)
    stop.check("rollout")  # too late for this one: the first process hasn't heard of it
    with pytest.raises(Interrupted, match="SIGTERM left"):
        stop.check("update")


def test_one_of_several_processes_waits_for_the_phase_and_the_first_says_so(monkeypatch):
    said = []
    monkeypatch.setattr(interrupts._thread, "start_new_thread", lambda say, line: said.append(line))
    stop = Stop(lambda: "left", Second())
    stop.check("rollout")
    stop.handle(TERM)
    stop.between()
    assert said == []
    first = Second()
    first.rank = 0
    stop = Stop(lambda: "left", first)
    stop.check("rollout")
    stop.handle(TERM)
    [(line,)] = said
    assert line == (
        "oar-bench: stopping after this phase (rollout); once more to stop at once, with the last "
        "checkpoint kept"
    )


def test_a_phase_that_fails_as_its_helper_was_signalled_too_is_a_stop():
    """A scheduler signals every process of a job: the engine's end is no fault of its own."""
    left = []

    def broken(phase: str) -> None:
        with stoppable(lambda: left.append(phase) or "after step 3") as stop:
            stop.check(phase)
            os.kill(os.getpid(), TERM)
            raise InputError("vLLM's engine died")

    with pytest.raises(Interrupted, match="SIGTERM after step 3") as caught:
        broken("rollout")
    assert isinstance(caught.value.__cause__, InputError)
    assert left == ["rollout"]
    with pytest.raises(InputError):
        broken("update")
    assert left == ["rollout"]


@pytest.mark.parametrize(
    ("phase", "rank", "kept"), [("rollout", 0, [1]), ("credit", 0, [1]), ("update", 0, []),
                                ("rollout", 1, [])],
)  # fmt: skip
def test_an_engine_that_dies_costs_no_finished_step(phase, rank, kept):
    """Of one process, which has that step's weights at hand in phases that don't change them."""
    left = []
    with pytest.raises(InputError, match="died"), stoppable(  # noqa: PT012
        lambda: left.append(1) or "after step 3", Second() if rank else ALONE
    ) as stop:  # fmt: skip
        stop.check(phase)
        raise InputError("vLLM's engine died")
    assert left == kept


def test_several_processes_are_not_left_together_where_one_alone_failed():
    left = []
    with pytest.raises(Interrupted, match="SIGTERM at once"), stoppable(  # noqa: PT012
        lambda: left.append(1) or "after step 3", Second()
    ) as stop:  # fmt: skip
        stop.check("rollout")
        stop.handle(TERM)
        raise InputError("vLLM's engine died")
    assert left == []
