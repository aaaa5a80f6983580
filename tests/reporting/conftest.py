"""One synthetic OUT folder and its report, shared by the tests that only read them."""

import pytest

from oar_bench.reporting import write_report
from tests.reporting.synthetic import make_out


@pytest.fixture(scope="session")
def out(tmp_path_factory):
    return make_out(tmp_path_factory.mktemp("reproduce") / "OUT")


@pytest.fixture(scope="session")
def report(out, tmp_path_factory):
    return write_report(out, tmp_path_factory.mktemp("report"))
