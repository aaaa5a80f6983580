"""Every call returns in time, whatever the text; nothing is executed; imports stay light."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from oar_bench.answers import Grader, extract_answer
from oar_bench.answers.workers import Worker

HOSTILE = {
    "tower": "10^{10^{10}}",
    "tall tower": "9^{9^{9^{9^{9}}}}",
    "ascii tower": "9**9**9**9**9",
    "factorials": "((((9!)!)!)!)!",
    "many factorials": "3" + "!" * 3000,
    "binomial": "\\binom{10^9}{5 \\cdot 10^8}",
    "power of a sum": "(x+y+z+w+1)^{5000}",
    "nested powers of sums": "((x+1)^{999}+1)^{999}",
    "braces": "{" * 1_000_000,
    "closed braces": "{" * 5000 + "1" + "}" * 5000,
    "brackets": "(" * 20_000 + ")" * 20_000,
    "boxes": "\\boxed{" * 20_000 + "}" * 20_000,
    "minus signs": "-" * 5001 + "1",
    "slashes": "1" + "/2" * 3000,
    "carets": "2" + "^2" * 3000,
    "primes": "f" + "'" * 5000,
    "digits": "1" * 9_000,
    "decimals": "0." + "3" * 9_000,
    "exponent": "1e999999999",
    "fractions": "\\frac" * 5000,
    "roots": "\\sqrt{" * 3000 + "2" + "}" * 3000,
    "long sum": "+".join(f"\\sqrt{{{n}}}" for n in range(2, 900)),
    "long product": "".join(f"(x+{n})" for n in range(400)),
    "list": ",".join(map(str, range(3000))),
    "signs": "\\pm 1" * 50,
    "unions": "\\cup".join(["(0,1)"] * 400),
    "trigonometry": "\\sin(\\sin(e^{e^{e^{e^{5}}}}))",
    "odd trigonometry": "\\sin" * 500 + "x",
    "integral": "\\int_0^1 x^{x^{x^x}} dx",
    "sum": "\\sum_{k=1}^{99999} \\frac{1}{k^k}",
    "nul": "\x00" * 1000,
    "surrogate": "\ud800\udc00\ud800",
    "spaces": " " * 100_000 + "1",
    "backslashes": "\\" * 11_999 + "x",
    "commas": "," * 11_000 + "x",
    "code": "__import__('os').system('touch oarpwned')",
    "format": "{0.__class__.__mro__}",
    "megabyte": "The answer is not known. " * 40_000,
    "newlines": "\n" * 1_000_000,
    "dollars": "$" * 100_000,
    "hashes": "#" * 100_000,
    "fences": "```python\n" * 50_000,
    "thinking": "<think>" * 50_000 + "</think>" * 50_000,
    "ends": "<|im_end|>" * 50_000,
}


@pytest.fixture(scope="module")
def grader() -> Iterator[Grader]:
    with Grader(memo=False) as shared:
        shared.compare("\\int_0^1 x dx", "1/2")  # a worker is ready
        yield shared


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("template", ["{}", "It is $\\boxed{{{}}}$.", "The answer is {}."])
def test_hostile_text_returns_in_time(grader: Grader, name: str, template: str) -> None:
    text = template.format("@").replace("@", HOSTILE[name])
    start = time.perf_counter()
    grade = grader.grade(text, "7/3")
    bare = grader.compare(text, "x^2+1")
    as_gold = grader.compare("x^2+1", HOSTILE[name])
    assert time.perf_counter() - start < 9  # three calls, at most one deadline each
    assert not grade.correct
    assert not bare.correct
    assert not as_gold.correct


@pytest.mark.parametrize("answer_type", ["number", "choice", "exact"])
def test_hostile_text_in_other_types(answer_type: str) -> None:
    with Grader(answer_type=answer_type) as other:  # type: ignore[arg-type]
        for text in HOSTILE.values():
            start = time.perf_counter()
            other.grade(text, "B" if answer_type == "choice" else "7")
            assert time.perf_counter() - start < 2.5


def test_a_stuck_worker_is_killed_and_replaced() -> None:
    worker = Worker()
    try:
        assert worker.ask("2", "2", 10).status == "correct"
        assert worker.child is not None
        first = worker.child.process
        start = time.perf_counter()
        reply = worker.ask("\\sum_{k=1}^{1000000000} \\frac{1}{k}", "1", 0.5)
        assert reply.status == "timeout"
        assert time.perf_counter() - start < 2
        assert first.poll() is not None
        assert worker.ask("2", "2", 10).status == "correct"
    finally:
        worker.stop()


def test_a_timeout_is_a_status_of_its_own() -> None:
    with Grader(deadline=0.05) as quick:
        grade = quick.compare("\\int_0^1 \\sin(\\sin(\\sin x)) dx", "1")
        assert grade.status == "timeout"
        assert not grade.correct


def test_many_threads_share_a_grader() -> None:
    pairs = [(f"So it is $\\boxed{{{n}/2}}$.", f"\\frac{{{n}}}{{2}}") for n in range(50)]
    pairs += [("$\\boxed{\\int_0^1 2x dx}$", "1")] * 4
    with Grader(workers=2) as shared, ThreadPoolExecutor(8) as threads:
        grades = list(threads.map(lambda pair: shared.grade(*pair), pairs))
    assert all(grade.correct for grade in grades)


def test_from_asyncio() -> None:
    async def run() -> list[bool]:
        with Grader() as shared:
            jobs = [asyncio.to_thread(shared.grade, f"\\boxed{{{n}}}", str(n)) for n in range(20)]
            return [grade.correct for grade in await asyncio.gather(*jobs)]

    assert all(asyncio.run(run()))


def test_no_signals_are_used_outside_the_main_thread() -> None:
    results: list[bool] = []
    with Grader() as shared:
        thread = threading.Thread(
            target=lambda: results.append(shared.compare("\\int_0^1 2x dx", "1").correct)
        )
        thread.start()
        thread.join(60)
    assert results == [True]


def test_the_package_imports_nothing_heavy() -> None:
    code = (
        "import sys, oar_bench.answers as a; a.grade('\\\\boxed{\\\\sqrt{8}}', '2\\\\sqrt{2}');"
        "print([m for m in ('sympy', 'math_verify', 'torch', 'mpmath') if m in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"


def test_extraction_is_linear() -> None:
    for text in HOSTILE.values():
        start = time.process_time()
        extract_answer(text * 2)
        assert time.process_time() - start < 1.0
