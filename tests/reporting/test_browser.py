"""The page in a real browser (skipped where there is none): no overflow, no complaint."""

import re
import shutil
import subprocess

import pytest

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
