"""Tables as LaTeX, in the style of the booktabs package."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from oar_bench.reporting.text import MINUS, visible

SPECIAL = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
    "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    MINUS: "$-$", "×": r"$\times$", "≥": r"$\geq$", "≤": r"$\leq$", "–": "--", "…": r"\dots{}",
    "\N{NO-BREAK SPACE}": "~", "\N{NARROW NO-BREAK SPACE}": r"\,", "ρ": r"$\rho$",
    "⟨": r"$\langle$", "⟩": r"$\rangle$", "|": r"\textbar{}", "`": r"\textasciigrave{}",
    "<": r"\textless{}", ">": r"\textgreater{}", "“": "``", "”": "''", "\n": " ",
}  # fmt: skip


def latex(text: str) -> str:
    r"""Text in which LaTeX finds nothing to carry out.

    >>> latex("50 % of a_b \\input{x}")
    '50 \\% of a\\_b \\textbackslash{}input\\{x\\}'
    """
    written = "".join(SPECIAL.get(c, c) for c in visible(text))
    # after the \\ of the row before, these would be an argument of it
    return "{}" + written if written.startswith(("[", "*")) else written


def booktabs(
    header: Sequence[str], rows: Sequence[Sequence[str]], *, wide: Collection[str] = (),
    numbers: Collection[str] = (),
) -> str:  # fmt: skip
    r"""A tabular; needs \usepackage{booktabs}, and array's `p` columns are of the base.

    Args:
        header: names of the columns.
        rows: cells as plain text.
        wide: columns of long text, which wrap.
        numbers: columns that stand to the right.

    >>> print(booktabs(["a", "n"], [["x_1", "2"]], numbers=["n"]))
    \begin{tabular}{@{}lr@{}}
    \toprule
    a & n \\
    \midrule
    x\_1 & 2 \\
    \bottomrule
    \end{tabular}
    <BLANKLINE>
    """
    width = 0.75 / len(wide) if wide else 0.0
    kinds = [
        f"p{{{width:.2f}\\linewidth}}" if name in wide else "r" if name in numbers else "l"
        for name in header
    ]
    lines = [" & ".join(map(latex, row)) + r" \\" for row in (header, *rows)]
    begin, end = rf"\begin{{tabular}}{{@{{}}{''.join(kinds)}@{{}}}}", r"\end{tabular}"
    top = [begin, r"\toprule", lines[0], r"\midrule"]
    return "\n".join([*top, *lines[1:], r"\bottomrule", end, ""])
