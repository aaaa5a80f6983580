"""From a report's view to Markdown, HTML and the example's SVG, by jinja2.

What comes out of an expression is made visible and escaped by the environment itself, so that no
template can forget to: `finalize` for both languages, autoescape for HTML and SVG.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from functools import lru_cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from oar_bench.reporting import text, wording
from oar_bench.reporting.drilldown import form_words
from oar_bench.reporting.example import Example, lay_out
from oar_bench.reporting.example_image import image_of_tokens
from oar_bench.reporting.figures import DARK, Drawing, drawing
from oar_bench.reporting.svg import Styles, inline

CHARACTER, LINE = 8, 24  # pixels of a character and a line in the example's figure
OPACITY = {"b1": 0.14, "b2": 0.27, "b3": 0.4, "b4": 0.53, "b5": 0.68,
           "s1": 0.07, "s2": 0.14, "s3": 0.22, "s4": 0.32}  # fmt: skip


def _shown(value: Any) -> Any:
    return value if isinstance(value, Markup) else text.visible(str(value))


def _shown_in_markdown(value: Any) -> Any:
    if isinstance(value, text.Written | Markup):
        return value
    return text.markdown(text.visible(str(value)))


def thousands(value: float) -> text.Written:
    """A large number with thin spaces between thousands.

    >>> thousands(31415.9) == "31\N{NARROW NO-BREAK SPACE}416"
    True
    """
    shown = text.number(value, 0)
    if not shown.isdigit():
        return shown
    return text.Written(f"{int(shown):,}".replace(",", "\N{NARROW NO-BREAK SPACE}"))


def small(value: float) -> text.Written:
    """A number that may be tiny: 0, or scientific with one digit.

    >>> small(0.0), small(3.2e-7), small(0.25)
    ('0', '3e−07', '0.25')
    """
    if value == 0:
        return text.Written("0")
    if abs(value) < 0.001:
        return text.Written(f"{value:.0e}".replace("-", text.MINUS))
    return text.number(value, 2)


def _fenced(value: str) -> text.Written:
    shown = text.visible(value).rstrip("\n")
    mark = text.fence(shown)
    return text.Written(f"{mark}\n{shown}\n{mark}")


def _code(value: str) -> text.Written:
    """Text within one pair of backticks, in a cell of a Markdown table."""
    shown = text.visible(value).replace("\n", " ")
    return text.Written("".join(f"⟨U+{ord(c):04X}⟩" if c in "`|<&" else c for c in shown))


def _token(value: str) -> str:
    return value.replace("\n", "↵\n")


@lru_cache(maxsize=2)
def _environment(language: str) -> Environment:
    environment = Environment(
        loader=PackageLoader("oar_bench.reporting"),
        autoescape=language != "md",
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=_shown_in_markdown if language == "md" else _shown,
    )
    own = (
        *(text.percent, text.points, text.bracket, text.number, text.significant, text.p_value),
        *(
            thousands,
            small,
            wording.settle_words,
            wording.verdict_word,
            wording.detectable_words,
            wording.seeds_words,
        ),
    )
    environment.filters.update({function.__name__: function for function in own})
    environment.filters.update(fenced=_fenced, token=_token, code=_code, found=form_words)
    return environment


def markdown_page(view: Mapping[str, Any], figures: Mapping[str, str]) -> str:
    """report.md."""
    return page("report.md.j2", {**view, "figures": _every(view, figures)})


def page(template: str, view: Mapping[str, Any]) -> str:
    """A Markdown page from its template."""
    return _tidy(_environment("md").get_template(template).render(view))


def _every(view: Mapping[str, Any], drawn: Mapping[str, str]) -> dict[str, str | None]:
    """The figures by name, with None for those that this report hasn't."""
    return {**dict.fromkeys(view["labels"]), **drawn}


def _tidy(page: str) -> str:
    """At most one empty line in a row, none at the end."""
    lines: list[str] = []
    for line in page.splitlines():
        if line.strip() or (lines and lines[-1].strip()):
            lines.append(line.rstrip())
    return "\n".join(lines).rstrip() + "\n"


def html_page(view: Mapping[str, Any], figures: Mapping[str, str]) -> str:
    """index.html: one file, its one style sheet named by hash in the content-security policy."""
    styles = Styles()
    inlined = {
        name: inline(svg, name, view["labels"][name], styles)
        for name, svg in figures.items()
        if name != "example"
    }
    css = f"{shipped_text('report.css')}{_dark()}\n{styles.css()}"
    view = {**view, "figures": _every(view, inlined)}
    return document("report.html.j2", view, css, shipped_text("report.js"))


def shipped_text(name: str) -> str:
    """A style sheet or script of the templates."""
    return (files("oar_bench.reporting") / "templates" / name).read_text(encoding="utf-8")


def document(template: str, view: Mapping[str, Any], css: str, script: str = "") -> str:
    """A page from its template, which gets `css`, `script` and `policy` besides the view.

    The policy allows the one style sheet and the one script, named by their hashes, nothing else.
    """
    sheet, code = f"\n{css}\n", f"\n{script}\n" if script else ""
    allowed = [f"style-src {_hashed(sheet)}", *([f"script-src {_hashed(code)}"] if code else [])]
    policy = "; ".join(["default-src 'none'", *allowed, "base-uri 'none'", "form-action 'none'"])
    found = _environment("html").get_template(template)
    given = {**view, "css": Markup(sheet), "script": Markup(code), "policy": policy}
    return found.render(given).lstrip()


def _hashed(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _dark() -> str:
    colours = "".join(f"--c-{light[1:]}:{dark};" for light, dark in DARK.items())
    return f"@media (prefers-color-scheme:dark){{:root{{{colours}}}}}"


def example_figure(example: Example) -> Drawing:
    """figures/example.svg: every method's shaded tokens, one block under the other."""
    panels, top, columns = [], 6, 40
    for shaded in example.methods:
        cells, lines = lay_out(shaded)
        boxes = [
            {
                "x": 10 + CHARACTER * cell.x,
                "y": top + 28 + LINE * cell.y,
                "width": CHARACTER * cell.width,
                "text": cell.text,
                "title": cell.token.title,
                "fill": {"b": "#d55e00", "s": "#0072b2"}.get(cell.token.shade[0]),
                "opacity": OPACITY.get(cell.token.shade, 0),
                "mark": cell.token.section if cell.token.section in ("prefix", "answer") else None,
            }
            for cell in cells
        ]
        beyond = len(shaded.tokens) - len(cells)
        more = f" (its first {text.counted(len(cells), 'token')} of {len(shaded.tokens)})"
        label = shaded.method + (more if beyond else "")
        panels.append({"method": label, "top": top, "boxes": boxes})
        columns = max([columns, *(cell.x + cell.width for cell in cells)])
        top += 28 + LINE * lines + 14
    template = _environment("svg").get_template("example.svg.j2")
    width, height, most = 20 + CHARACTER * max(columns, 72), top + 28, text.number(example.most, 2)
    svg = template.render(panels=panels, width=width, height=height, most=most)
    return drawing(svg, lambda: image_of_tokens(panels, (width, height), most))
