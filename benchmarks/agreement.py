"""How far two greedy evaluations of one checkpoint agree, token by token.

    python benchmarks/agreement.py CHECKPOINT EVALUATION/TASK EVALUATION/TASK

Pairs the rows of two folders by (problem, sample), encodes both responses with the checkpoint's
tokenizer and prints how many are equal, and where the others part: floating-point sums in another
order turn a nearly tied argmax, and from there on greedy decoding goes its own way.
"""

from __future__ import annotations

import statistics
import sys
from itertools import zip_longest
from pathlib import Path

from oar_bench.engines.tokens import encode, load_tokenizer
from oar_bench.records import read_jsonl


def first_difference(left: list[int], right: list[int]) -> int | None:
    """The place of the first unlike token, or None.

    >>> first_difference([5, 6], [5, 6]), first_difference([5, 6], [5]), first_difference([1], [2])
    (None, 1, 0)
    """
    pairs = enumerate(zip_longest(left, right))
    return next((place for place, (a, b) in pairs if a != b), None)


def main() -> None:
    """Prints a few lines."""
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    tokenizer = load_tokenizer(sys.argv[1])
    left, right = (
        {(row["problem"], row["sample"]): row for row in read_jsonl(Path(folder, "samples.jsonl"))}
        for folder in sys.argv[2:]
    )
    both = sorted(left.keys() & right.keys())
    places, alike, tokens = [], 0, 0
    for key in both:
        ids = [encode(tokenizer, rows[key]["response"]) for rows in (left, right)]
        place = first_difference(*ids)
        tokens += max(map(len, ids))
        alike += min(map(len, ids)) if place is None else place
        if place is not None:
            places.append(place)
    print(f"{len(both)} responses in both, of {len(left)} and {len(right)}")
    print(f"equal: {len(both) - len(places)}")
    print(f"tokens before the first unlike one: {alike} of {tokens}")
    if places:
        print(f"first unlike token: median {statistics.median(places):g}, earliest {min(places)}")


if __name__ == "__main__":
    main()
