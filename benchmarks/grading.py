"""Speed and agreement of the grader and of math-verify, side by side in one run.

    python benchmarks/grading.py [--cases FILE] [--texts N] [--no-math-verify]

Two inputs: a case file with known verdicts, and texts made by a template (worked solutions of about
1,500 characters that end in a box, half of them wrong). Every row is one pass in one process with
one thread; "memo off" grades every text afresh, its gold included. Worker start-up is not timed.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from oar_bench.answers import Grader
from oar_bench.answers.corpus import Case, CorpusGrader, read_cases

CASES = Path(__file__).resolve().parents[1] / "tests" / "answers" / "cases" / "public.jsonl"
STEP = (
    "Step {step}: we use that ${a} + {b} = {c}$, and hence the number of ways is $\\frac{{{a}}}"
    "{{{b}}}$ of the total, which gives us the next equation to solve for $x_{{{step}}}$.\n"
)
PLAIN = ["{n}", "-{n}", "\\frac{{{n}}}{{{m}}}", "{n}.5", "{n}/{m}"]
ALGEBRAIC = [
    "{n}\\sqrt{{{m}}}",
    "({n}, {m})",
    "[{n}, \\infty)",
    "x^2+{n}x+{m}",
    "{n}\\pi",
    "{n}\\%",
]


def texts(count: int, forms: Sequence[str], seed: int = 7) -> list[tuple[str, str]]:
    """(response, gold) pairs; every second answer is wrong."""
    rng = random.Random(seed)
    pairs = []
    for index in range(count):
        n, m = rng.randint(2, 9_999), rng.randint(2, 99)
        form = rng.choice(forms)
        gold = form.format(n=n, m=m)
        answer = form.format(n=n + index % 2, m=m).replace(
            "\\frac", rng.choice(["\\frac", "\\dfrac"])
        )
        steps = "".join(
            STEP.format(step=k, a=rng.randint(1, 99), b=rng.randint(1, 99), c=rng.randint(1, 99))
            for k in range(1, 9)
        )
        pairs.append((f"{steps}Therefore the answer is $\\boxed{{{answer}}}$.", gold))
    return pairs


def rate(action: Callable[[], int], repeats: int = 3) -> tuple[float, int]:
    """The best rate per second over some passes, and the last count of accepted answers."""
    best, accepted = float("inf"), 0
    for _ in range(repeats):
        start = time.perf_counter()
        accepted = action()
        best = min(best, time.perf_counter() - start)
    return best, accepted


def ours_on_texts(pairs: list[tuple[str, str]], memo: bool) -> Callable[[], int]:
    grader = Grader(memo=memo)
    return lambda: sum(grader.grade(response, gold).correct for response, gold in pairs)


def math_verify_on_texts(pairs: list[tuple[str, str]]) -> Callable[[], int]:
    from math_verify import parse, verify

    return lambda: sum(verify(parse(f"${gold}$"), parse(text)) for text, gold in pairs)


def math_verify_case(case: Case) -> bool:
    from math_verify import parse, verify

    text = f"${case.text}$" if case.level == "equiv" else case.text
    try:
        return bool(verify(parse(f"${case.gold}$"), parse(text)))
    except Exception:  # noqa: BLE001  a benchmark of somebody else's code: any failure is "not accepted"
        return False


def main() -> None:
    """Prints one table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=Path, default=CASES)
    parser.add_argument("--texts", type=int, default=2_000)
    parser.add_argument("--no-math-verify", action="store_true")
    options = parser.parse_args()
    cases = [case for case in read_cases(options.cases) if not case.debatable]
    plain_cases = [c for c in cases if not c.kind.startswith("adv_")]
    rows: list[tuple[str, str, int, float, float]] = []

    def on_cases(
        name: str, judge: Callable[[Case], bool], subset: list[Case], repeats: int
    ) -> None:
        seconds, right = rate(lambda: sum(judge(c) == c.expected for c in subset), repeats)
        what = "all cases" if subset is cases else "cases, not adversarial"
        rows.append((what, name, len(subset), len(subset) / seconds, right / len(subset)))

    with CorpusGrader(memo=False) as grader:
        for subset in (cases, plain_cases):
            on_cases("ours, memo off", lambda c: grader.grade(c).correct, subset, 4)
    if not options.no_math_verify:
        on_cases("math-verify", math_verify_case, plain_cases, 1)
    for label, forms in (("texts, plain numbers", PLAIN), ("texts, algebra", ALGEBRAIC)):
        pairs = texts(options.texts, forms)
        expected = len(pairs) - len(pairs) // 2
        actions = [("ours, memo off", ours_on_texts(pairs, False), 3),
                   ("ours, memo on", ours_on_texts(pairs, True), 3)]  # fmt: skip
        if not options.no_math_verify:
            actions.append(("math-verify", math_verify_on_texts(pairs), 1))
        for name, action, repeats in actions:
            seconds, accepted = rate(action, repeats)
            agreement = 1 - abs(accepted - expected) / len(pairs)
            rows.append((label, name, len(pairs), len(pairs) / seconds, agreement))
    print(f"{'input':<24} {'grader':<16} {'rows':>6} {'per second':>11} {'as expected':>12}")
    for what, name, count, per_second, share in rows:
        print(f"{what:<24} {name:<16} {count:>6} {per_second:>11,.0f} {share:>12.2%}")


if __name__ == "__main__":
    main()
