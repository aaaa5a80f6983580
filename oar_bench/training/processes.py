"""The processes of one run: how many there are, what each owns, and how they agree.

Started by `accelerate launch` (or torchrun) a run has several. The groups of a step are dealt out
to them; each samples, grades, scores and credits the responses it owns, and the update averages
their gradients. What one process says to the others goes through `gather`, everywhere in the same
order; the first process alone writes files.

An InputError of one process reaches the others at their next `gather`, and all of them end: the
first one says it, so that there is one line.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal, TypeVar

from oar_bench.errors import InputError

if TYPE_CHECKING:
    from oar_bench.training.logprobs import LogprobModel
    from oar_bench.training.trainee import Trainee

T = TypeVar("T")


class Processes:
    """One process alone, which is the trivial case; `oar_bench.training.several` has the other."""

    rank = 0
    count = 1
    kind = "one process"

    @property
    def is_first(self) -> bool:
        """Whether this process writes the files and speaks for all."""
        return self.rank == 0

    @property
    def device(self) -> str:
        """Where this process computes."""
        import torch

        return "cuda" if torch.cuda.is_available() else "cpu"

    def gather(self, value: T) -> list[T]:
        """The value of every process, in the order of their ranks, on all of them."""
        return [value]

    def to_first(self, value: T) -> list[T]:
        """The value of every process on the first one; an empty list elsewhere."""
        return [value]

    def in_order(self, places: Sequence[int], rows: Sequence[T]) -> list[T]:
        """The rows of all processes on the first one, sorted by their places; [] elsewhere."""
        parts = self.to_first(list(zip(places, rows, strict=True)))
        return [row for _, row in sorted((pair for part in parts for pair in part), key=_place)]

    def by_first(self, make: Callable[[], T]) -> T:
        """What `make` gives on the first process, which alone calls it, on all of them."""
        made = [make()] if self.is_first else []
        return self.gather(made)[0][0]

    def means(self, mine: Mapping[str, tuple[float, float]]) -> dict[str, float]:
        """The means over all processes of this one's means, each with its count; see `pooled`."""
        return pooled(self.gather(dict(mine)))

    def share(self, groups: int) -> list[int]:
        """The numbers of the groups that this process owns, of so many."""
        return list(range(self.rank, groups, self.count))

    def wrap(self, scorer: LogprobModel) -> Trainee:
        """The module whose gradients the update takes."""
        from oar_bench.training.trainee import Trainee

        return Trainee(scorer)

    @contextmanager
    def together(self) -> Iterator[None]:
        """Inside, an InputError of any process ends them all."""
        yield


ALONE = Processes()


def _place(pair: tuple[int, object]) -> int:
    return pair[0]


def pooled(parts: Sequence[Mapping[str, tuple[float, float]]]) -> dict[str, float]:
    """Means of the whole from the means of its parts, each with the count it was taken over.

    A name whose counts are all 0 keeps the value of the first part that has it.

    >>> pooled([{"reward": (0.5, 4)}, {"reward": (0.0, 1), "share": (1.0, 0)}])
    {'reward': 0.4, 'share': 1.0}
    >>> pooled([{"reward": (0.1, 3)}])
    {'reward': 0.1}
    """
    names = list(dict.fromkeys(name for part in parts for name in part))
    found: dict[str, float] = {}
    for name in names:
        known = [part[name] for part in parts if name in part]
        counted = [pair for pair in known if pair[1]] or known[:1]
        if len(counted) == 1:  # itself, to the bit
            found[name] = counted[0][0]
        else:
            count = sum(count for _, count in counted)
            found[name] = sum(value * count for value, count in counted) / count
    return found


@contextmanager
def joined() -> Iterator[Processes]:
    """The processes that this one was started with; inside, they end together.

    Told by the variables that `accelerate launch` and torchrun set: WORLD_SIZE, RANK, LOCAL_RANK.

    Raises:
        InputError: they were started in a way that training doesn't know.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) < 2:
        yield ALONE
        return
    try:
        kind = asked_kind()
    except InputError:
        if int(os.environ["RANK"]):
            raise SystemExit(2) from None  # the first process says it
        raise
    from oar_bench.training.several import Several

    processes = Several(kind)
    with processes.together():
        yield processes


def asked_kind() -> Literal["ddp", "fsdp2"]:
    """How `accelerate launch` wants the update spread.

    Raises:
        InputError: in a way that training doesn't know.
    """
    on = {name for name, value in os.environ.items() if value.lower() == "true"}
    refusals = [
        ("ACCELERATE_USE_DEEPSPEED" in on, "training doesn't run on DeepSpeed", "use DDP or FSDP2"),
        ("ACCELERATE_USE_MEGATRON_LM" in on, "training doesn't run on Megatron-LM",
         "use DDP or FSDP2"),
        (os.environ.get("ACCELERATE_MIXED_PRECISION", "no") != "no",
         "the precision of training is the recipe's", "give --mixed_precision no and model.dtype"),
        ("ACCELERATE_USE_FSDP" in on and os.environ.get("FSDP_VERSION", "1") != "2",
         "training doesn't run on the first FSDP", "add --fsdp_version 2"),
        ("ACCELERATE_USE_FSDP" in on and "FSDP_OFFLOAD_PARAMS" in on,
         "shards can't be kept on the CPU", "give --fsdp_offload_params false"),
    ]  # fmt: skip
    for refused, what, mend in refusals:
        if refused:
            raise InputError(what, "accelerate launch", mend)
    return "fsdp2" if "ACCELERATE_USE_FSDP" in on else "ddp"
