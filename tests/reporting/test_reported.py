"""Every file of baselines/reported/ loads, and says what it is and how far to trust it."""

import pytest

from oar_bench.errors import InputError
from oar_bench.reporting.reported import benchmark_of, load_reported
from oar_bench.resources import shipped

SOURCES = load_reported()


def test_every_file_is_loaded_and_holds_numbers_or_findings():
    files = {path.stem for path in (shipped("baselines") / "reported").iterdir()}
    assert set(SOURCES) == files
    for name, source in SOURCES.items():
        assert source.rows or source.findings, name
        for entry in source.rows:
            assert entry.protocol.words()
            assert all(value.words() for value in entry.numbers().values())


def scores(name, method, **of):
    [entry] = [e for e in SOURCES[name].rows if e.method == method
               and all(getattr(e, key) == value for key, value in of.items())]  # fmt: skip
    return {benchmark: value.words() for benchmark, value in entry.numbers().items()}


def test_numbers_are_those_of_their_sources():
    base = {"model": "Qwen2.5-Math-7B", "metric": "pass@1"}
    assert scores("simplerl-zoo", "GRPO", **base) == {
        "aime24": "40", "amc23": "70", "math500": "80.2", "minerva_math": "37.5",
        "olympiadbench": "39",
    }  # fmt: skip
    assert scores("oar-index", "OAR, best row") == {
        "math500": "83.8", "amc23": "65.6", "aime24": "33.5"
    }  # fmt: skip
    assert scores("oar-readme", "OAR-P", quantity="score") == {"gsm8k": "79.6", "math": "47.3"}
    assert scores("sober-look", "base", model="Qwen2.5-Math-1.5B")["amc23"] == "44 ± 4.9 (SD)"
    assert scores("understand-r1-zero-issue35", "Dr. GRPO (Oat-Zero-7B)", metric="pass@1") == {
        "aime24": "26.7 to 30"
    }  # fmt: skip


@pytest.mark.parametrize("name", ["ktae", "understand-r1-zero"])
def test_averages_over_five_sets_are_those_of_their_rows(name):
    for entry in SOURCES[name].rows:
        values = {k: v.value for k, v in entry.numbers().items()}
        if "mean5" in values:
            five = [v for k, v in values.items() if k != "mean5"]
            assert len(five) == 5
            assert sum(five) / 5 == pytest.approx(values["mean5"], abs=0.15), entry.method


def test_what_was_withdrawn_is_trusted_by_nobody():
    assert [name for name, s in SOURCES.items() if s.trust == "none"] == ["oar-readme"]
    assert SOURCES["oar-index"].trust == "low"


def test_only_our_own_tasks_are_known_to_ask_a_benchmark():
    assert benchmark_of("oar_gsm8k") == "gsm8k"
    assert benchmark_of("minerva_math") is None  # lm-eval's is another set
    assert benchmark_of("oar_gsm8kx") is None


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("{model: m, method: x, protocol: {}, values: {math500: 183}}", "percentage"),
        ("{model: m, method: x, protocol: {}, values: {mathh: 83}}", "mathh"),
        ("{model: m, method: x, values: {math500: 83}}", "protocol' is missing"),
        ("{model: m, method: x, protocol: {temp: 1}, values: {math500: 83}}", "rows.0.protocol"),
        ("{model: m, method: x, protocol: {}, values: {math500: {low: 3}}}", "math500"),
    ],
)
def test_a_broken_file_is_one_line(tmp_path, row, said):
    (tmp_path / "x.yaml").write_text(
        f"source: s\nkind: authors\ntrust: low\nwhy: w\nrows:\n  - {row}\n"
    )
    with pytest.raises(InputError, match=said) as caught:
        load_reported(tmp_path)
    assert "\n" not in str(caught.value)
