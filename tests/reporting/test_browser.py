"""The page in a real browser (skipped where there is none): no overflow, no complaint.

What a test does in the page it does by a script of its own behind the page's, hashed into the same
policy: the policy stays as strict as it is.
"""

import html
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from oar_bench.reporting import render, write_report
from tests.reporting.synthetic import HOSTILE, make_out, make_run

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium here")
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
         "--disable-background-networking", "--disable-component-update", "--disable-sync",
         "--virtual-time-budget=5000", "--enable-logging=stderr", "--dump-dom")  # fmt: skip


def browse(page, profile):
    command = [BROWSER, *FLAGS, f"--user-data-dir={profile}", page.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)


def test_the_browser_has_nothing_to_complain_about(report, tmp_path):
    done = browse(report.html, tmp_path / "profile")
    assert "CONSOLE" not in done.stderr
    assert "<svg" in done.stdout


def beyond(page, width, folder):
    """By how many pixels a page (HTML text) is wider than a window of that width."""
    # the same page in a frame of that width; only the copy may run a script, to tell what is beyond
    tell = (
        "<script>const e = document.documentElement;"
        "parent.postMessage(e.scrollWidth - e.clientWidth, '*')</script>"
    )
    page = re.sub(r"<meta http-equiv[^>]*>", "", page)
    (folder / "page.html").write_text(page.replace("</body>", f"{tell}</body>"))
    frame = folder / "frame.html"
    frame.write_text(
        "<!doctype html><body>"
        "<script>onmessage = e => document.title = 'beyond by ' + e.data</script>"
        f"<iframe src=page.html style='width:{width}px;height:900px;border:0'></iframe>"
    )
    done = browse(frame, folder / "profile")
    return re.search("<title>beyond by (.*)</title>", done.stdout)[1]


@pytest.mark.parametrize("width", [360, 768, 1200])
def test_the_page_never_scrolls_sideways(report, tmp_path, width):
    assert beyond(report.html.read_text(), width, tmp_path) == "0"


@pytest.fixture(scope="session")
def small(tmp_path_factory):
    """Runs of few problems, hostile names among the methods and in every text."""
    out = make_out(tmp_path_factory.mktemp("small") / "OUT", ("grpo", "oar-p"), (0, 1),
                   problems=14, steps=4)  # fmt: skip
    for place, name in enumerate(HOSTILE):
        folder = out / "runs" / f"m{place}" / "seed-0"
        make_run(out, name, 0, folder=folder, problems=14, steps=4)
    return out


def acted(runs, folder, monkeypatch, action):
    """The page of a report in which `action`, the body of an async function, ran and told JSON."""
    known = render.shipped_text
    tell = (
        "window.addEventListener('load', async () => {"
        f"const told = await (async () => {{ {action} }})();"
        "document.title = JSON.stringify(told); });"
    )
    added = {"report.js": tell}
    monkeypatch.setattr(render, "shipped_text", lambda name: known(name) + added.get(name, ""))
    done = browse(write_report(runs, folder / "report").html, folder / "profile")
    title = re.search("<title>(.*?)</title>", done.stdout, re.S)[1]
    return json.loads(html.unescape(title)), done


SORT = """
const table = document.querySelector("#problems table"), head = table.tHead.rows[0].cells;
const column = Array.from(head).findIndex(c => c.textContent === "grpo");
const shares = () => Array.from(table.tBodies[0].rows, row => row.cells[column].textContent);
head[column].firstChild.click();
const up = shares(), state = head[column].getAttribute("aria-sort");
head[column].firstChild.click();
return {up, state, down: shares(), then: head[column].getAttribute("aria-sort")};
"""


def test_a_click_sorts_by_number_and_another_one_turns_it(small, tmp_path, monkeypatch):
    told, done = acted(small, tmp_path, monkeypatch, SORT)
    numbers = [int(text) for text in told["up"]]
    assert len(set(numbers)) > 2
    assert numbers == sorted(numbers)
    assert [int(text) for text in told["down"]] == sorted(numbers, reverse=True)
    assert (told["state"], told["then"]) == ("ascending", "descending")
    assert "CONSOLE" not in done.stderr


FILTER = """
const box = document.querySelector("#problems .filter input");
const rows = Array.from(document.querySelector("#problems table").tBodies[0].rows);
box.value = "P0003";
box.dispatchEvent(new Event("input"));
const shown = rows.filter(row => row.offsetHeight > 0).map(row => row.cells[0].textContent);
box.value = "";
box.dispatchEvent(new Event("input"));
return {shown, all: rows.filter(row => row.offsetHeight > 0).length};
"""


def test_what_is_typed_filters_rows(small, tmp_path, monkeypatch):
    told, _ = acted(small, tmp_path, monkeypatch, FILTER)
    assert told == {"shown": ["p0003"], "all": 14}


HARM = """
for (const one of document.querySelectorAll("details")) one.open = true;
return {foreign: document.querySelectorAll("img, iframe, a[href^=http], [onerror]").length,
  scripts: document.scripts.length, loaded: performance.getEntriesByType("resource").length,
  said: document.body.innerText.includes("<script>alert(1)<" + "/script>"),
  hidden: getComputedStyle(document.querySelector("main")).display};
"""


def test_hostile_names_and_texts_load_nothing_and_run_nothing(small, tmp_path, monkeypatch):
    told, done = acted(small, tmp_path, monkeypatch, HARM)
    assert told == {"foreign": 0, "scripts": 1, "loaded": 0, "said": True, "hidden": "block"}
    assert "CONSOLE" not in done.stderr


AXE = """
for (const one of document.querySelectorAll("details")) one.open = true;
const found = await axe.run(document, {resultTypes: ["violations"]});
const dark = matchMedia("(prefers-color-scheme: dark)").matches;
return {dark, rules: found.passes.length, violations: found.violations.map(v => [
  v.id, v.help, v.nodes.slice(0, 3).map(n => n.html.slice(0, 200))])};
"""


@pytest.mark.parametrize("dark", [False, True])
def test_axe_finds_nothing(report, out, tmp_path, monkeypatch, dark):
    package = pytest.importorskip("axe_core_python")
    source = (Path(package.__file__).parent / "axe.min.js").read_text(encoding="utf-8")
    assert "</script" not in source
    if dark:
        preferred = "--blink-settings=preferredColorScheme=0"
        monkeypatch.setattr(f"{__name__}.FLAGS", (*FLAGS, preferred))
    told, _ = acted(out, tmp_path, monkeypatch, f"{source}\n{AXE}")
    assert told["dark"] is dark
    assert told["rules"] > 15
    assert told["violations"] == []


def test_hostile_names_never_scroll_the_page_sideways(small, tmp_path):
    page = write_report(small, tmp_path / "report").html.read_text()
    opened = page.replace("<details", "<details open")
    assert beyond(opened, 360, tmp_path) == "0"


def test_the_page_is_whole_without_its_script(report):
    page = report.html.read_text()
    body = re.sub(r"<script>.*?</script>", "", page, flags=re.S)
    assert not re.search(r"<(button|input)|<[^>]*\shidden", body.partition("<body>")[2])
