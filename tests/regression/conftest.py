"""A made reproduction and its baseline, which tests read and copy and never change."""

from __future__ import annotations

import pytest

from oar_bench.regression.baseline import write_baseline
from oar_bench.regression.snapshot import take
from tests.regression.made import out


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    return out(tmp_path_factory.mktemp("base") / "OUT")


@pytest.fixture(scope="module")
def kept(base, tmp_path_factory):
    path = tmp_path_factory.mktemp("expected") / "made.json"
    write_baseline(path, take(base), "made", {}, None)
    return path
