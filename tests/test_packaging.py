"""The wheel and the sdist: built, installed each on its own, complete, and run from outside."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

import oar_bench

ROOT = Path(__file__).parent.parent
KINDS = ("wheel", "sdist")


def run(*arguments: str | Path, cwd: Path, path: Path | None = None) -> str:
    """What a command of this Python prints; `path` comes before everything that is installed."""
    environment = {**os.environ, "PYTHONPATH": str(path or "")}
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> dict[str, Path]:
    """Folder that each kind of distribution was installed into, by pip."""
    folder = tmp_path_factory.mktemp("packages")
    run("-m", "hatchling", "build", "-t", "sdist", "-d", folder, cwd=ROOT)
    (archive,) = folder.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        tar.extractall(folder, filter="data")
    # As `python -m build` does: the wheel is made from what the sdist holds, not from the checkout.
    source = folder / archive.name.removesuffix(".tar.gz")
    run("-m", "hatchling", "build", "-t", "wheel", "-d", folder, cwd=source)
    (wheel,) = folder.glob("*.whl")
    pip = ("-m", "pip", "install", "-q", "--no-deps", "--no-index", "--no-build-isolation")
    for kind, file in zip(KINDS, (wheel, archive), strict=True):
        run(*pip, "--target", folder / kind, file, cwd=folder)
    return {kind: folder / kind for kind in KINDS} | {"source": source}


def files(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


@pytest.mark.parametrize("kind", KINDS)
def test_everything_that_runs_is_installed(installed, kind):
    package = files(installed[kind] / "oar_bench")
    shipped = {
        f"_shipped/{name}/{path}": content
        for name in ("tasks", "baselines")
        for path, content in files(ROOT / name).items()
    }
    assert package == files(ROOT / "oar_bench") | shipped


def test_the_sdist_holds_what_its_tests_need(installed):
    source = files(installed["source"])
    for name in ("tests", "benchmarks", "docs", "reports"):
        expected = {f"{name}/{path}": content for path, content in files(ROOT / name).items()}
        assert expected.items() <= source.items()
    assert {"README.md", "CONTRIBUTING.md", "LICENSE", "constraints.txt", "tox.ini"} <= set(source)


@pytest.mark.parametrize("kind", KINDS)
def test_the_installed_program_runs_outside_the_checkout(installed, kind, tmp_path):
    target = installed[kind]
    where = "import oar_bench; print(oar_bench.__file__)"
    assert Path(run("-c", where, cwd=tmp_path, path=target).strip()).is_relative_to(target)
    program = target / "bin" / "oar-bench"
    assert run(program, "--version", cwd=tmp_path, path=target).split() == [
        "oar-bench",
        oar_bench.__version__,
    ]
    assert "oar_gsm8k" in run(program, "tasks", cwd=tmp_path, path=target)
    if kind == "sdist":  # of the wheel, `tox -e smoke` runs every stage
        assert "steps" in run(program, "train", "smoke", "--dry-run", cwd=tmp_path, path=target)
    assert list(tmp_path.iterdir()) == []


def test_the_changelog_tells_of_this_version():
    heads = re.findall(r"^## (\S+) \((\S+)\)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    version, date = heads[0]
    assert version == oar_bench.__version__
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", date)
