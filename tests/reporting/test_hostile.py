"""Text that models and file names bring is shown, never interpreted."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

from oar_bench.reporting import write_report
from oar_bench.reporting.text import fence, markdown, visible
from tests.reporting.synthetic import HOSTILE, make_example, make_out, make_run, write_rows

ALLOWED = {"html", "head", "meta", "title", "style", "script", "body",
            "header", "h1", "h2", "h3", "p", "div",
           "strong", "ul", "li", "code", "nav", "a", "main", "section", "figure", "figcaption",
           "table", "caption", "thead", "tbody", "tr", "th", "td", "small", "span", "br", "details",
           "summary", "pre", "footer", "svg", "g", "path", "defs", "clippath", "rect", "use",
           "text"}  # fmt: skip


class Page(HTMLParser):
    """Collects elements with their attributes, the style sheet and the script."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.own, self._inside, self.text = [], {"style": "", "script": ""}, "", ""
        self.feed(text)

    @property
    def sheet(self):
        return self.own["style"]

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self._inside = tag

    def handle_endtag(self, _tag):
        self._inside = ""

    def handle_data(self, data):
        if self._inside in self.own:
            self.own[self._inside] += data
        self.text += data


@pytest.fixture
def page(report):
    return Page(report.html.read_text())


def test_only_elements_of_the_template_are_in_the_page(page):
    assert {tag for tag, _ in page.elements} <= ALLOWED
    for ours in ("style", "script"):
        assert sum(tag == ours for tag, _ in page.elements) == 1


def test_no_handler_no_style_attribute_no_address_to_fetch(page):
    for tag, attributes in page.elements:
        for name, value in attributes.items():
            assert not name.startswith("on")
            assert name not in ("style", "src", "srcset", "action", "xlink:href")
            if name == "href":
                assert value.startswith("#"), (tag, value)
    assert not re.search(r"url\((?!#)|@import", page.sheet)


def test_the_policy_names_the_one_style_sheet_and_the_one_script_by_their_hashes(page):
    policy = next(
        a["content"] for tag, a in page.elements
        if tag == "meta" and a.get("http-equiv") == "Content-Security-Policy"
    )  # fmt: skip
    for kind, content in page.own.items():
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


def test_the_script_fetches_nothing_and_makes_no_markup_of_text(page):
    words = (
        r"fetch|XMLHttp|WebSocket|import\b|eval|innerHTML|insertAdjacent|document\.write|https?:"
    )
    assert not re.search(words, page.own["script"])


def test_ids_are_unique_and_every_reference_has_its_target(page):
    ids = [a["id"] for _, a in page.elements if "id" in a]
    assert len(ids) == len(set(ids))
    targets = {a["href"][1:] for _, a in page.elements if a.get("href")}
    targets |= set(re.findall(r"url\(#([^)]+)\)", str(page.elements) + page.sheet))
    assert targets <= set(ids)


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_tokens_are_in_the_page_as_text(page, text):
    assert visible(text).replace("\n", "↵\n") in page.text


HIDDEN = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u206f]")


def test_no_control_character_is_left_anywhere(report):
    for path in (report.markdown, report.html, *report.tables, *report.figures):
        assert not HIDDEN.search(path.read_text(encoding="utf-8")), path.name


def test_markdown_has_no_raw_html_and_no_link_from_a_model(report):
    page = report.markdown.read_text()
    outside = re.sub(r"^(`{3,})\n.*?^\1$", "", page, flags=re.M | re.S)
    assert not re.search(r"<[a-z/!]", outside, re.I)
    for target in re.findall(r"\]\(([^)]*)\)", outside):
        assert target.startswith("figures/")


def test_figures_are_well_formed_and_hold_no_script(report):
    for path in report.figures:
        root = ElementTree.fromstring(path.read_text())
        assert {e.tag.rpartition("}")[2] for e in root.iter()} <= {
            "svg", "g", "path", "defs", "style", "use", "text", "rect", "clipPath", "line", "title"
        }  # fmt: skip


def test_hostile_methods_tasks_and_settings(tmp_path):
    settings = {"name": HOSTILE[0], HOSTILE[3]: HOSTILE[5]}
    for i, text in enumerate(HOSTILE):
        folder = tmp_path / "runs" / f"m{i}" / "seed-0"
        make_run(tmp_path, text, 0, tasks=(), folder=folder, problems=5, steps=3,
                 settings=settings, fingerprints={"recipe": text})  # fmt: skip
        make_out_task(folder, HOSTILE[0])
    paths = write_report(tmp_path, tmp_path / "report")
    page = Page(paths.html.read_text())
    assert {tag for tag, _ in page.elements} <= ALLOWED
    assert not any("style" in a for _, a in page.elements)
    assert not re.search(r"<[a-z/!]", paths.markdown.read_text().partition("## Reproduce")[0], re.I)
    for path in paths.figures:
        ElementTree.fromstring(path.read_text())


def make_out_task(folder, task):
    """An evaluation whose task name is hostile, in a folder with a plain name."""
    import numpy as np

    from tests.reporting.synthetic import make_evaluation

    make_evaluation(folder / "eval" / "t", task, [0.5] * 5, np.random.default_rng(0))


@pytest.mark.parametrize("filler", ["x", "\u202e", "<b>", "\ud800"])
def test_responses_of_a_million_characters_are_cut(tmp_path, filler):
    make_out(tmp_path, methods=("grpo",), seeds=(0,), problems=3, steps=2, example=False)
    for name, key in (("samples", "response"), ("problems", "prompt"), ("scores", "extracted")):
        file = tmp_path / "runs/grpo/seed-0/eval/arithmetic" / f"{name}.jsonl"
        rows = [json.loads(line) | {key: filler * 1_000_000} for line in file.open()]
        write_rows(file, rows)
    page = write_report(tmp_path, tmp_path / "report").html.read_text(encoding="utf-8")
    assert "cut here" in page
    assert len(page) < 600_000
    assert not HIDDEN.search(page)


def test_a_line_of_a_million_characters_is_no_trouble(tmp_path):
    make_out(tmp_path, methods=("grpo",), seeds=(0,), problems=5, steps=2)
    make_example(tmp_path)
    path = tmp_path / "credit_example.json"
    path.write_text(path.read_text().replace('" mod"', '"' + "x" * 1_000_000 + '"'))
    paths = write_report(tmp_path, tmp_path / "report")
    assert paths.figures[-1].stat().st_size < 100_000


def test_csv_cells_never_begin_a_formula(tmp_path):
    folder = tmp_path / "runs" / "m" / "seed-0"
    make_run(tmp_path, "=1+1", 0, folder=folder, problems=5, steps=2)
    paths = write_report(tmp_path, tmp_path / "report")
    assert ",'=1+1," in paths.tables[0].read_text()


def test_escapes_by_hand():
    assert markdown("[x](y)") == "[x]\\(y)"
    assert markdown("`a`|b") == "\\`a\\`\\|b"
    assert fence("```") == "````"
    assert visible("\u200b\u2028\x85\t") == "⟨U+200B⟩⟨U+2028⟩⟨U+0085⟩⟨U+0009⟩"
    assert visible("naïve λ 数 \n") == "naïve λ 数 \n"
