"""Several processes, joined through torch.distributed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, Literal, TypeVar

import torch
import torch.distributed as dist

from oar_bench.errors import InputError, os_line
from oar_bench.training.interrupts import Interrupted
from oar_bench.training.logprobs import LogprobModel
from oar_bench.training.processes import Processes
from oar_bench.training.trainee import Replicated, Sharded, Trainee

T = TypeVar("T")
PATIENCE = timedelta(days=7)
"""How long processes wait for each other: one may be at a warm start or a long rollout. A process
that died is noticed at once, by its closed connection."""


class Several(Processes):
    """This process among those that were started with it.

    What they say goes over gloo, on CPUs; tensors of the update over nccl on GPUs, gloo elsewhere.
    """

    def __init__(self, kind: Literal["ddp", "fsdp2"]) -> None:
        """Meet the others; `kind` is how the update is spread."""
        self.kind = kind
        self.rank = int(os.environ["RANK"])
        self.count = int(os.environ["WORLD_SIZE"])
        on_cpu = os.environ.get("ACCELERATE_USE_CPU", "false").lower() == "true"
        self._device = "cpu"
        backend = "gloo"
        if torch.cuda.is_available() and not on_cpu:
            self._device = f"cuda:{int(os.environ.get('LOCAL_RANK', '0'))}"
            torch.cuda.set_device(self._device)
            backend = "cpu:gloo,cuda:nccl"
        # transformers would leave the weights of all but the first process empty; each samples.
        os.environ["FSDP_CPU_RAM_EFFICIENT_LOADING"] = "false"
        if not dist.is_initialized():
            dist.init_process_group(backend=backend)
        self.group = dist.new_group(backend="gloo", timeout=PATIENCE)

    @property
    def device(self) -> str:
        """Where this process computes: its own GPU, or the CPU."""
        return self._device

    def gather(self, value: T) -> list[T]:
        """The value of every process, in the order of their ranks, on all of them."""
        return self._exchange(value, None)

    def to_first(self, value: T) -> list[T]:
        """The value of every process on the first one; an empty list elsewhere."""
        self.gather(None)  # a failure is told here: the next exchange knows of none
        found: list[Any] | None = [None] * self.count if self.is_first else None
        dist.gather_object(value, found, dst=0, group=self.group)
        return found or []

    def wrap(self, scorer: LogprobModel) -> Trainee:
        """The module whose gradients the update takes."""
        self.gather(None)  # wrapping is a conversation of its own
        return Sharded(scorer, self.count) if self.kind == "fsdp2" else Replicated(scorer)

    @contextmanager
    def together(self) -> Iterator[None]:
        """Inside, an InputError (or a file's error) of any process ends them all.

        Raises:
            InputError: on the first process, what any of them met; on each, that one is gone.
        """
        try:
            try:
                yield
                self.gather(None)  # nobody leaves before the last file is written
            except (Interrupted, KeyboardInterrupt) as error:
                if self.is_first:
                    raise
                raise SystemExit(getattr(error, "code", 130)) from None  # the first one says it
            except (InputError, OSError) as error:
                line = str(error) if isinstance(error, InputError) else os_line(error)
                if line is None:
                    raise
                self._exchange(None, line)
        except _Told as told:
            raise InputError(str(told)) from None
        except RuntimeError as error:
            if isinstance(error, dist.DistError) or "gloo" in str(error):
                raise InputError(
                    "another process of this run has ended", f"process {self.rank}",
                    "start the same command again with --resume",
                ) from error  # fmt: skip
            raise
        dist.destroy_process_group()

    def _exchange(self, value: T | None, failure: str | None) -> list[Any]:
        """Tell the others a value or a failure, and hear theirs; a failure ends every process."""
        heard: list[Any] = [None] * self.count
        dist.all_gather_object(heard, (value, failure), group=self.group)
        failures = [said for _, said in heard if said is not None]
        if failures and not self.is_first:
            self._outlive_first()
            raise SystemExit(2)
        if failures:
            raise _Told(failures[0])
        return [told for told, _ in heard]

    def _outlive_first(self) -> None:
        """Wait for the first process's end: launchers signal all others as soon as one ends, and it
        has an engine to close and the line to say."""
        with suppress(RuntimeError):  # so its end is told
            dist.recv(torch.empty(1), src=0, group=self.group)


class _Told(Exception):
    """What a process met that ends them all."""
