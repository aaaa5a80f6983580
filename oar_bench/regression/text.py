"""How a check is written: terminal, Markdown for a pull request, JUnit XML, GitHub, JSON."""

from __future__ import annotations

import math
from typing import Any
from xml.etree import ElementTree

from oar_bench.evaluation.summary import finite
from oar_bench.regression.check import Outcome
from oar_bench.regression.finding import Check
from oar_bench.regression.limits import METRICS
from oar_bench.reporting.text import (
    NONE,
    Grid,
    aligned,
    counted,
    markdown,
    number,
    p_value,
    percent,
    piped,
    points,
    visible,
)

WORDS = ("check", "on", "method", "verdict")
SHORT = {"pass": "pass", "regression": "REGRESSION", "too little data": "too little data",
         "not checked": "not checked"}  # fmt: skip
HEADLINES = {
    "pass": "pass: nothing is worse than its limit allows",
    "regression": "regression",
    "unlike": "unlike: this run can't be held against this baseline",
    "too little data": "too little data to tell a pass from a regression",
}


def grid(outcome: Outcome) -> Grid:
    """Header and a row for each check, all as text."""
    bounds = f"{100 * (1 - outcome.alpha):g} % bounds"
    rows: Grid = [["check", "on", "method", "seeds", "baseline", "now", "change", bounds, "limit",
                   "p (Holm)", "detectable", "verdict"]]  # fmt: skip
    return rows + [[one_line(cell) for cell in _row(check)] for check in outcome.checks]


def _row(c: Check) -> list[str]:
    change = "identical" if c.identical else _signed(c, c.change)
    known = not math.isnan(c.low)
    bounds = f"[{_signed(c, c.low)}, {_signed(c, c.high)}]" if known and not c.identical else NONE
    return [METRICS[c.metric].title, c.task or NONE, c.method, str(len(c.seeds)),
            _value(c, c.before), _value(c, c.now), change, bounds, limit_text(c),
            p_value(math.nan if c.identical else c.p_worse), _amount(c, c.detectable),
            SHORT[c.verdict]]  # fmt: skip


def _value(c: Check, value: float) -> str:
    if METRICS[c.metric].unit == "pp":
        return f"{percent(value)} %"
    return {"tokens": number(value), "step-time": f"{number(value, 2)}x",
            "memory": f"{number(value, 0)} MiB"}[c.metric]  # fmt: skip


def _signed(c: Check, change: float) -> str:
    return f"{points(change)} {METRICS[c.metric].unit}"


def _amount(c: Check, size: float) -> str:
    if METRICS[c.metric].unit == "pp" and size > 1:
        return "> 100 pp"
    return NONE if math.isnan(size) else f"{percent(size)} {METRICS[c.metric].unit}"


def limit_text(c: Check) -> str:
    """The worsening that is accepted, as a change: a drop is negative."""
    text = f"{100 * c.limit:g} {METRICS[c.metric].unit}"
    return f"-{text}" if c.metric == "drop" else f"+{text}"


def flag(c: Check) -> str:
    """The option that sets a check's limit."""
    return "--max-drop" if c.metric == "drop" else f"--limit {c.metric}=SIZE"


def sentence(c: Check) -> str:
    """A check's finding in one sentence.

    >>> sentence(Check("memory", "", "grpo", (0,), 100.0, 150.0, 0.5, 0.25, verdict="regression"))
    'peak memory of grpo: 100 MiB -> 150 MiB, +50.0 %; accepted is +25 %'
    """
    line = f"{c.name}: {_value(c, c.before)} -> {_value(c, c.now)}, {_signed(c, c.change)}"
    if not math.isnan(c.low):
        line += f" [{_signed(c, c.low)}, {_signed(c, c.high)}]"
    line += f"; accepted is {limit_text(c)}"
    if c.verdict == "too little data":
        line += f"; {_settle(c)}"
    if c.verdict == "regression" and c.lost:
        line += f"; most lost: {', '.join(c.lost)}"
    return line


def _settle(c: Check) -> str:
    if math.isnan(c.detectable):
        return "nothing is known of its noise: evaluate more problems"
    if METRICS[c.metric].unit == "pp" and c.detectable > 1:
        return (
            f"no drop at all can be told with {counted(len(c.seeds), 'seed')} that "
            "scatter like these: train more seeds"
        )
    more = math.ceil((c.detectable / c.limit) ** 2)
    data = f"some {more} times the data" if more > 1 else "a little more data"
    return (
        f"the minimum detectable effect is {_amount(c, c.detectable)}: it takes {data} "
        f"(problems, samples, seeds), or a wider {flag(c)}"
    )


def findings(outcome: Outcome) -> list[tuple[str, str]]:
    """What keeps a run from passing: (kind, sentence), the worst first."""
    found = [("unlike", line) for line in outcome.unlike]
    found += [("missing", line) for line in outcome.missing]
    for verdict in ("regression", "too little data"):
        found += [(verdict, sentence(c)) for c in outcome.checks if c.verdict == verdict]
    return [(kind, one_line(line)) for kind, line in found]


def notes(outcome: Outcome) -> list[str]:
    """What is told and doesn't decide, a sentence each."""
    return [one_line(line) for line in outcome.notes]


def one_line(text: str) -> str:
    """In one line, without what could command a terminal: files hold whatever names they like."""
    return visible(text).replace("\n", "\N{DOWNWARDS ARROW WITH CORNER LEFTWARDS}")


def headline(outcome: Outcome) -> str:
    """The verdict, and how many checks say so."""
    of = [c for c in outcome.checks if c.verdict == outcome.verdict]
    text = HEADLINES[outcome.verdict]
    if outcome.checks and outcome.verdict != "unlike":
        text += f" ({len(of)} of {counted(len(outcome.checks), 'check')})"
    return text


def _against(outcome: Outcome) -> str:
    why = outcome.baseline.latest
    return one_line(f"run {outcome.run} against baseline {outcome.baseline.snapshot.name} "
                 f"of {why['date']} ({why['reason']})")  # fmt: skip


def plain(outcome: Outcome) -> str:
    """The check for a terminal."""
    parts = [_against(outcome), ""]
    if outcome.checks:
        parts += [aligned(grid(outcome), WORDS), ""]
    parts += [f"note: {line}" for line in notes(outcome)]
    parts += [f"{kind}: {line}" for kind, line in findings(outcome)]
    return "\n".join([*parts, headline(outcome)])


def as_markdown(outcome: Outcome) -> str:
    """The check as a summary for a pull request: verdict and findings first, the table folded."""
    parts = [f"### oar-bench check: {markdown(headline(outcome))}", "",
             markdown(_against(outcome)), ""]  # fmt: skip
    parts += [f"- **{kind}**: {markdown(line)}" for kind, line in findings(outcome)]
    if outcome.checks:
        parts += ["", "<details><summary>All checks</summary>", "", *piped(grid(outcome), WORDS),
                  "", "</details>"]  # fmt: skip
    if outcome.notes:
        parts += ["", *(f"- {markdown(line)}" for line in notes(outcome))]
    return "\n".join(parts) + "\n"


def workflow_commands(outcome: Outcome) -> list[str]:
    """Workflow commands by which GitHub marks a run: an error each, a notice for each note."""
    lines = [_command("error", f"oar-bench check: {kind}", line)
             for kind, line in findings(outcome)]  # fmt: skip
    return lines + [_command("notice", "oar-bench check", line) for line in notes(outcome)]


def _command(level: str, title: str, message: str) -> str:
    r"""One workflow command; its own signs in the words are escaped as GitHub asks.

    >>> _command("error", "a: b", "100 %\n::x")
    '::error title=a%3A b::100 %25%0A::x'
    """
    message = message.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    title = title.replace("%", "%25").replace(":", "%3A").replace(",", "%2C")
    return f"::{level} title={title}::{message}"


def as_junit(outcome: Outcome) -> str:
    """The check as JUnit XML: a case for each check, unlike fields and missing results as errors.

    A regression is a failure, too little data an error.
    """
    cases = [_case(c) for c in outcome.checks]
    for kind, lines in (("unlike", outcome.unlike), ("missing", outcome.missing)):
        cases += [_error(kind, line.partition(" is ")[0], line) for line in lines]
    return _suite(f"oar-bench check {outcome.baseline.snapshot.name}", cases)


def undone(reason: str) -> tuple[str, str, str]:
    """Markdown, JUnit XML and workflow command of a check that couldn't be made at all.

    So that no file of an earlier check is taken for this one's.
    """
    title = "oar-bench check: not made"
    return (f"### {title}\n\n- {markdown(one_line(reason))}\n",
            _suite("oar-bench check", [_error("input", "the check is made", reason)]),
            _command("error", title, one_line(reason)))  # fmt: skip


def _suite(name: str, cases: list[ElementTree.Element]) -> str:
    count = {tag: sum(case.find(tag) is not None for case in cases)
             for tag in ("failure", "error")}  # fmt: skip
    suite = ElementTree.Element(
        "testsuite", name=_xml(name), tests=str(len(cases)),
        failures=str(count["failure"]), errors=str(count["error"]),
    )  # fmt: skip
    suite.extend(cases)
    root = ElementTree.Element("testsuites")
    root.append(suite)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _case(c: Check) -> ElementTree.Element:
    place = f"oar-bench.{c.task}" if c.task else "oar-bench"
    case = ElementTree.Element("testcase", classname=_xml(place),
                               name=_xml(f"{METRICS[c.metric].title} of {c.method}"))  # fmt: skip
    tag = {"regression": "failure", "too little data": "error"}.get(c.verdict)
    if tag:
        ElementTree.SubElement(case, tag, type=c.verdict, message=_xml(sentence(c)))
    return case


def _error(kind: str, name: str, message: str) -> ElementTree.Element:
    case = ElementTree.Element("testcase", classname=f"oar-bench.{kind}", name=_xml(name))
    ElementTree.SubElement(case, "error", type=kind, message=_xml(message))
    return case


def _xml(text: str) -> str:
    """Without the characters that XML can't hold even escaped."""
    return "".join(c for c in text if c in "\t\n" or c.isprintable())


def as_dict(outcome: Outcome) -> dict[str, Any]:
    """The check ready for JSON; what isn't known is null."""
    return {
        "kind": "check",
        "verdict": outcome.verdict,
        "exit_code": outcome.code,
        "run": outcome.run,
        "baseline": outcome.baseline.snapshot.name,
        "baseline_written": {k: outcome.baseline.latest[k] for k in ("date", "reason")},
        "alpha": outcome.alpha,
        "unlike": list(outcome.unlike),
        "missing": list(outcome.missing),
        "notes": list(outcome.notes),
        "checks": [
            {"metric": c.metric, "task": c.task or None, "method": c.method,
             "seeds": list(c.seeds), "before": finite(c.before), "now": finite(c.now),
             "change": finite(c.change), "low": finite(c.low), "high": finite(c.high),
             "limit": c.limit, "p_worse_holm": finite(c.p_worse), "p_margin": finite(c.p_margin),
             "detectable": finite(c.detectable), "identical": c.identical, "verdict": c.verdict,
             "lost": list(c.lost)}
            for c in outcome.checks
        ],
    }  # fmt: skip
