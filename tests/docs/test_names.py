"""What the documents call by name is there: modules and what is in them, files, settings.

That every public name has a docstring is ruff's to say (rule D1).
"""

from __future__ import annotations

import importlib
import re

import pytest

from tests.docs.commands import DOCUMENTS, ROOT

DOTTED = re.compile(r"\boar_bench(?:\.\w+)+")
IMPORTED = re.compile(r"from (oar_bench[\w.]*) import \(?([\w, \n]+?)\)?(?:\n|$|#|`)")
FOLDERS = ("oar_bench", "tests", "benchmarks", "tasks", "baselines", "docs", "reports")
FILES = re.compile(rf"(?<![\w/.-])(?:{'|'.join(FOLDERS)})/[\w./-]*\w\.(?:py|yaml|json|md|jsonl)\b")


def texts():
    return [(path, path.read_text("utf-8")) for path in DOCUMENTS]


def names():
    found = [(path.name, name) for path, text in texts() for name in DOTTED.findall(text)]
    for path, text in texts():
        for module, words in IMPORTED.findall(text):
            found += [(path.name, f"{module}.{word}") for word in re.findall(r"\w+", words)]
    return [*dict.fromkeys(found)]


def found(name):
    """Whether a dotted name leads somewhere: as far as modules go, then by attributes."""
    parts = name.split(".")
    for size in range(len(parts), 0, -1):
        try:
            value = importlib.import_module(".".join(parts[:size]))
        except ModuleNotFoundError:
            continue
        for part in parts[size:]:
            if not hasattr(value, part):
                return False
            value = getattr(value, part)
        return True
    return False


@pytest.mark.parametrize(("page", "name"), names())
def test_a_name_of_the_package_is_there(page, name):
    if name.startswith("oar_bench.engines.vllm"):
        pytest.importorskip("vllm")
    assert found(name), f"{page} names {name}"


def test_names_are_found_and_missed():
    assert len(names()) > 10
    assert found("oar_bench.errors.InputError")
    assert not found("oar_bench.errors.OutputError")
    assert not found("oar_bench.nothing")


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_files_named_are_there(path):
    named = {file for file in FILES.findall(path.read_text("utf-8")) if "NAME" not in file}
    assert sorted(file for file in named if not (ROOT / file).exists()) == []
