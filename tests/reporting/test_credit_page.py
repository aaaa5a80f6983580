"""`oar-bench credit show`: known importances give known cells, and hostile text stays text."""

from __future__ import annotations

import base64
import hashlib
import io
import re
from importlib.resources import files

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oar_bench.errors import InputError
from oar_bench.reporting.credit_page import GENERATOR, credit_page
from oar_bench.reporting.credit_terminal import head, print_credit, shaded, table
from oar_bench.reporting.credit_view import LONGEST, credit_view, depth, ranks
from oar_bench.reporting.text import visible
from tests.reporting.synthetic import HOSTILE
from tests.reporting.test_browser import BROWSER, beyond, browse
from tests.reporting.test_hostile import ALLOWED, HIDDEN, Page


def made(pieces=("3", " + 4", " = 7", " ####", " 7", ""), names=None, **changes):
    """What `show` returns, with importances and weights by hand: 0.5, 2 and 0.25 are scored."""
    pieces = list(pieces)
    extra = len(pieces) - 6
    importance = [0.5, 2.0, 0.25] + [0.0] * (3 + extra)
    weights = [0.6, 2.3, 0.1] + [1.0] * (3 + extra)
    return {
        "schema": 1, "kind": "credit", "source": "mine.jsonl: row 2", "model": "a/checkpoint",
        "prompt": "3 + 4 =", "response": "".join(pieces), "gold": "8", "seed": 1,
        "prompt_tokens": 4, "answer_type": "exact", "ids": list(range(20, 26 + extra)),
        "pieces": pieces, "names": names or [*pieces[:-1], "<eos>"],
        "sections": ["reasoning"] * 3 + ["prefix", "answer"] + ["rest"] * (1 + extra),
        "scored": [True] * 3 + [False] * (3 + extra), "found": True,
        "methods": {"oar-p": {"importance": importance, "weight": weights},
                    "grpo": {"importance": [0.0] * len(pieces), "weight": [1.0] * len(pieces)}},
        "settings": {"q": 0.4, "beta": 2.0}, "fingerprints": {"model": "0123456789ab"},
        "environment": {"python": "3.12.1"}, "notes": [], **changes,
    }  # fmt: skip


def no_answer():
    pieces = ["hmm", " so"]
    flat = {"importance": [0.0, 0.0], "weight": [1.0, 1.0]}
    return made() | {
        "pieces": pieces, "names": pieces, "ids": [5, 6], "sections": ["rest"] * 2,
        "scored": [False] * 2, "found": False, "methods": {"oar-p": flat, "oar-g": flat},
    }  # fmt: skip


def spans(page, region):
    """Class and tip of the tokens in the panel with that label."""
    found, inside = [], False
    for tag, attributes in page.elements:
        if tag == "div":
            inside = attributes.get("aria-label") == region
        elif inside and tag == "span":
            found.append((attributes["class"], attributes["data-tip"]))
    return found


def test_cells_by_hand():
    view = credit_view(made())
    assert [c.rank for line in view.lines for c in line.cells[:1]] == [2, 1, 3, None, None, None]
    # the largest is 2: 0.5 is a quarter of it, 0.25 an eighth
    assert [line.cells[0].depth for line in view.lines] == ["i4", "i5", "i3", "i0", "i0", "i0"]
    # weights above 1 in fifths up to 2.3, below in quarters
    assert [line.cells[0].shade for line in view.lines] == ["s2", "b5", "s4", "n", "n", "n"]
    assert [line.position for line in view.lines] == [4, 5, 6, 7, 8, 9]
    assert (view.answer, view.scored, view.most) == ("7", 3, 2.3)
    assert view.lines[5].text == "<eos>"
    assert [line.special for line in view.lines] == [False] * 5 + [True]
    assert [(m.method, m.empty) for m in view.methods] == [("oar-p", False), ("grpo", True)]


def test_the_page_has_these_cells():
    page = Page(credit_page(made(), "oar-bench credit show a/checkpoint"))
    by_importance = spans(page, "Tokens shaded by importance, oar-p")
    assert [name for name, _ in by_importance] == [
        "i4", "i5", "i3", "i0 prefix", "i0 answer", "i0 special"
    ]  # fmt: skip
    by_weight = spans(page, "Tokens shaded by weight, oar-p")
    assert [name for name, _ in by_weight] == [
        "s2",
        "b5",
        "s4",
        "n prefix",
        "n answer",
        "n special",
    ]
    assert by_weight[1][1].split("\n") == [
        "token 1: “ + 4”, reasoning",
        "id 21, position 5",
        "         weight  importance  rank",
        "  oar-p    2.30           2   1/3",
        "  grpo     1.00           0     –",
    ]
    assert [name for name, _ in spans(page, "Tokens of grpo")][:3] == ["n", "n", "n"]
    about = (
        "a/checkpoint · 6 tokens, 3 of them scored", "mine.jsonl: row 2", "0123456789ab",
        "oar-bench credit show a/checkpoint", "answer_type", "the right answer is 8",
    )  # fmt: skip
    for said in about:
        assert said in page.text


def test_the_table_has_every_number():
    page = credit_page(made(), "")
    rows = re.findall(r"<tr><th scope=\"row\">\d+</th>.*?</tr>", page)
    assert len(rows) == 6
    cells = [re.sub(r"(<[^>]+>)+", "|", row) for row in rows]
    assert cells[1] == "|1| + 4|reasoning|5|21|2|1|2.300|0|–|1.000|"
    assert cells[5] == "|5|&lt;eos&gt;|rest|9|25|0|–|1.000|0|–|1.000|"


def test_more_than_four_methods_make_a_second_table():
    found = made()
    found["methods"] |= {f"m{i}": found["methods"]["oar-p"] for i in range(4)}
    text = credit_page(found, "")
    page = Page(text)
    labels = [a["aria-label"] for _, a in page.elements if "Every" in a.get("aria-label", "")]
    assert labels == ["Every token, oar-p, grpo, m0, m1", "Every token, m2, m3"]
    assert sum(a.get("scope") == "colgroup" for _, a in page.elements) == 6
    assert len(re.findall(r'<th scope="row">\d+</th>', text)) == 2 * 6


@pytest.mark.parametrize("found", [made(), no_answer()], ids=["answer", "no answer"])
def test_nothing_but_one_style_sheet_is_allowed(found):
    text = credit_page(found, "")
    page = Page(text)
    assert {tag for tag, _ in page.elements} <= (ALLOWED | {"h4"}) - {"script"}
    [policy] = [a["content"] for _, a in page.elements if "Security" in a.get("http-equiv", "")]
    digest = base64.b64encode(hashlib.sha256(page.sheet.encode()).digest()).decode()
    assert policy == (
        f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    )
    assert GENERATOR in text[:4096]
    assert "url(" not in page.sheet
    ids = {a["id"] for _, a in page.elements if "id" in a}
    assert {a["href"] for _, a in page.elements if "href" in a} <= {f"#{name}" for name in ids}


def test_no_answer_is_said_and_every_weight_is_one():
    page = Page(credit_page(no_answer(), ""))
    assert "No answer was found in this response, so every weight is 1." in page.text
    assert "the line behind ####" in page.text
    shades = {a["class"] for tag, a in page.elements if tag == "span" and "data-tip" in a}
    assert shades == {"n"}
    view = credit_view(no_answer())
    assert "no answer was found in this response: every weight is 1" in head(no_answer(), view)


def test_an_answer_with_nothing_before_it():
    found = made() | {"scored": [False] * 6}
    assert "No token stands before the answer" in Page(credit_page(found, "")).text


def hostile():
    pieces = ["3", HOSTILE[0], " = 7", " ####", " 7", *HOSTILE[1:], "\n", ""]
    names = [*pieces[:-1], HOSTILE[0]]
    texts = {
        "prompt": "\n".join(HOSTILE), "gold": HOSTILE[2], "model": HOSTILE[4],
        "source": HOSTILE[6], "notes": list(HOSTILE), "settings": {HOSTILE[0]: HOSTILE[4]},
        "fingerprints": {"model": HOSTILE[6]}, "environment": {HOSTILE[2]: HOSTILE[1]},
    }  # fmt: skip
    return made(pieces, names, **texts)


def test_hostile_text_stays_text():
    text = credit_page(hostile(), HOSTILE[6])
    page = Page(text)
    assert not HIDDEN.search(text)
    text.encode()
    assert {tag for tag, _ in page.elements} <= ALLOWED | {"h4"}
    assert sum(tag == "style" for tag, _ in page.elements) == 1
    for _, attributes in page.elements:
        assert not {"style", "src", "srcset", "action"} & set(attributes)
        assert not any(name.startswith("on") for name in attributes)
    for piece in HOSTILE:
        assert visible(piece).replace("\n", "↵\n") in page.text


def test_hostile_text_never_commands_a_terminal():
    found = hostile()
    view = credit_view(found)
    shown = "\n".join([*head(found, view), table(view), *(part.plain for part in shaded(view))])
    assert "\x1b" not in shown
    assert not HIDDEN.search(shown)
    assert "\\x1b[31mred" in shown
    assert "\\u202eevil" in shown


def test_a_token_of_a_million_characters():
    found = made(["x" * 1_000_000, *made()["pieces"][1:]])
    page, lines = credit_page(found, ""), table(credit_view(found))
    assert len(page) < 60_000
    assert len(lines) < 6_000
    assert f"… ({1_000_000 - LONGEST} more)" in page


def test_not_a_number_is_a_dash():
    found = made()
    found["methods"]["oar-p"]["importance"][0] = None
    view = credit_view(found)
    assert [line.cells[0].rank for line in view.lines[:3]] == [None, 1, 2]
    assert view.lines[0].cells[0].depth == "i0"
    assert '<td class="of i0">–</td>' in credit_page(found, "")


@pytest.mark.parametrize("key", ["ids", "names", "scored", "sections"])
def test_lists_of_another_length_are_refused(key):
    found = made()
    with pytest.raises(InputError, match=key):
        credit_page(found | {key: found[key][:-1]}, "")


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=30))
def test_ranks_follow_the_values(values):
    got = ranks(values)
    if len(set(values)) == 1:
        assert set(got) == {None}
        return
    for value, rank in zip(values, got, strict=True):
        assert rank == 1 + sum(other > value for other in values)


@given(st.floats(0, 1e6), st.floats(1e-9, 1e6))
def test_a_deeper_shade_is_a_larger_importance(a, largest):
    one, two = depth(min(a, largest), largest), depth(min(a, largest) / 2, largest)
    assert one >= two
    assert depth(largest, largest) == "i5"


def test_a_terminal_gets_shades_and_anything_else_a_table(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    for name, value in (("TERM", "xterm-256color"), ("COLORTERM", "truecolor"), ("COLUMNS", "90")):
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("NO_COLOR", raising=False)
    screen, pipe, plain = Terminal(), io.StringIO(), Terminal()
    print_credit(made(), screen)
    assert "\x1b[30;48;2;31;166;124m + 4\x1b[0m" in screen.getvalue()  # i5
    assert "\x1b[30;48;2;221;109;19m + 4\x1b[0m" in screen.getvalue()  # b5
    assert "grpo: every weight is 1" in screen.getvalue()
    print_credit(made(), pipe)
    assert "\x1b" not in pipe.getvalue()
    assert re.search(r"^ +1 +5 +21 +reasoning +2 +1 +2\.300 .*\" \+ 4\"$", pipe.getvalue(), re.M)
    monkeypatch.setenv("NO_COLOR", "1")
    print_credit(made(), plain)
    assert "\x1b" not in plain.getvalue()


def luminance(colour):
    """Relative luminance of an sRGB colour (WCAG 2.2)."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4
              for c in (part / 255 for part in colour)]  # fmt: skip
    return sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_text_is_legible_on_every_shade(dark):
    folder = files("oar_bench.reporting") / "templates"
    css = "".join((folder / name).read_text() for name in ("report.css", "credit.css"))
    light, *dark_rules = re.split(r"@media \(prefers-color-scheme:dark\)", css)
    if dark:
        light += "".join(dark_rules)
    value = {name: text.strip() for name, text in re.findall(r"--(\w+):([^;}]+)", light)}
    # the last rule of a name wins, but credit.css sets --mark for both modes
    value["mark"] = re.search(r"--mark:([\d,]+)", css)[1]
    ink, paper = ([int(value[n][i : i + 2], 16) for i in (1, 3, 5)] for n in ("ink", "paper"))
    shades = re.findall(r"\.([bsi]\d)\{background:rgba\(var\(--(\w+)\),(\.\d+)\)", css)
    assert len(shades) == 14
    for name, tone, alpha in shades:
        colour = [int(c) for c in value[tone].split(",")]
        mixed = [float(alpha) * c + (1 - float(alpha)) * p
                 for c, p in zip(colour, paper, strict=True)]  # fmt: skip
        bright, dim = sorted((luminance(ink), luminance(mixed)), reverse=True)
        assert (bright + 0.05) / (dim + 0.05) >= 4.5, name


@pytest.mark.skipif(BROWSER is None, reason="no Chromium here")
def test_the_browser_has_nothing_to_complain_about(tmp_path):
    page = tmp_path / "page.html"
    page.write_text(credit_page(hostile(), ""))
    done = browse(page, tmp_path / "profile")
    assert "CONSOLE" not in done.stderr
    assert "Every token" in done.stdout


@pytest.mark.skipif(BROWSER is None, reason="no Chromium here")
@pytest.mark.parametrize("width", [360, 1200])
def test_the_page_never_scrolls_sideways(tmp_path, width):
    found = hostile()
    for key in ("model", "source", "gold"):
        found[key] = "a/long/path" * 40
    assert beyond(credit_page(found, "x" * 2000), width, tmp_path) == "0"
