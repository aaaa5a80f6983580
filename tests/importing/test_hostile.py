"""Files that are torn, forged or hostile: one clear line, exit 2, and nothing left behind."""

import json
import os
import pickle
import struct
import zipfile
from contextlib import closing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oar_bench.errors import InputError
from oar_bench.importing import archive, bounded
from oar_bench.importing.archive import Archive
from oar_bench.importing.bounded import folder_name, members, rows_of
from tests.importing.conftest import DATA, JSON_LOG, LOG, change, imports


@pytest.fixture
def told(call, tmp_path):
    """The one line that an import says; nothing but a lock is left in OUT then."""

    def run(source, *words):
        out = tmp_path / "out"
        done = call("import", str(source), "--out", str(out), *words)
        assert done.returncode == 2, done.stdout
        lines = [line for line in done.stderr.splitlines() if line.startswith("oar-bench: ")]
        assert len(lines) == 1, done.stderr
        assert "Traceback" not in done.stderr
        left = [path for path in out.rglob("*") if path.is_file() and path.name != ".lock"]
        assert not left
        return lines[0]

    return run


def zipped(path, files, method=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "w", method) as file:
        for name, content in files.items():
            file.writestr(name, content)
    return path


def unpacked():
    with closing(Archive(LOG)) as file:
        return {name: file.read(name) for name in file.names}


def test_a_log_in_deflate_is_read_as_in_zstandard(tmp_path):
    path = zipped(tmp_path / "old.eval", unpacked())
    assert imports(path, tmp_path / "out")["sums"].results["metrics"]["avg@k"]["value"] == 0.625


def test_a_bomb_is_refused_before_it_unpacks(told, tmp_path, monkeypatch):
    monkeypatch.setattr(archive, "MAX_VALUE", 1 << 20)
    bomb = {**unpacked(), "samples/x_epoch_1.json": b" " * (2 << 20)}
    assert "unpacks to over 1 MiB" in told(zipped(tmp_path / "bomb.eval", bomb))


def forged(path, name, size):
    """Let the central directory claim another unpacked size for a member."""
    data = bytearray(path.read_bytes())
    place = data.rindex(name.encode()) - 46
    assert data[place : place + 4] == b"PK\x01\x02"
    data[place + 24 : place + 28] = struct.pack("<I", size)
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("kind", ["zstandard", "deflate"])
def test_a_false_size_is_refused_without_unpacking_more(told, tmp_path, kind):
    path = tmp_path / "log.eval"
    if kind == "zstandard":
        path.write_bytes(LOG.read_bytes())
    else:
        zipped(path, unpacked())
    line = told(forged(path, "samples/sum-0_epoch_1.json", 100))
    assert "sum-0_epoch_1.json" in line


def test_names_in_an_archive_are_never_paths(tmp_path):
    content = unpacked()
    content["../../evil.json"] = content["samples/../../evil_epoch_1.json"] = b"{}"
    content["/etc/evil.json"] = b"{}"
    imports(zipped(tmp_path / "log.eval", content), tmp_path / "out")
    assert not list(tmp_path.parent.rglob("evil*"))


def test_a_member_twice_is_refused(told, tmp_path):
    path = zipped(tmp_path / "log.eval", unpacked())
    with zipfile.ZipFile(path, "a") as file, pytest.warns(UserWarning, match="Duplicate"):
        file.writestr("header.json", "{}")
    assert "two members have one name" in told(path)


def test_a_sample_twice_is_refused(told, tmp_path):
    content = unpacked()
    content["samples/again_epoch_1.json"] = content["samples/sum-0_epoch_1.json"]
    assert "sample 0 of problem 'sum-0' occurs twice" in told(zipped(tmp_path / "l.eval", content))


@pytest.mark.parametrize("share", [0.0, 0.3, 0.7, 0.99])
@pytest.mark.parametrize("source", [LOG, JSON_LOG], ids=["eval", "json"])
def test_torn_logs_are_told(told, tmp_path, source, share):
    data = source.read_bytes()
    path = tmp_path / f"torn{source.suffix}"
    path.write_bytes(data[: int(len(data) * share)])
    assert str(path) in told(path)


def test_torn_details_are_told(told, lighteval):
    path = next(lighteval.rglob("*.parquet"))
    path.write_bytes(path.read_bytes()[:9000])
    assert "no readable parquet file" in told(lighteval)


def test_torn_samples_are_told(told, lm_eval):
    path = next(lm_eval.rglob("samples_*"))
    data = path.read_bytes()
    path.write_bytes(data[:-40])
    assert "line 12 is no JSON" in told(lm_eval)
    path.write_bytes(b"".join(data.splitlines(keepends=True)[:9]))
    assert "9 problems in the samples, 12 in the results" in told(lm_eval)


def test_rows_of_another_run_are_told(told, lm_eval):
    change(next(lm_eval.rglob("samples_*")), lambda row: row.update(acc=1.0))
    assert "its samples give 1, its results say 0.333333 for acc,none" in told(lm_eval)


@pytest.mark.parametrize(
    ("field", "value", "line"),
    [
        ("acc", float("nan"), "line 1: acc is nan, no finite number"),
        ("acc", float("inf"), "acc is inf, no finite number"),
        ("acc", 10**400, "no finite number"),
        ("acc", "1", "acc is '1', no number"),
        ("acc", None, "acc is None, no number"),
        ("doc_id", 0, "sample 0 of problem 'oar_sum-0' occurs twice"),
        ("resps", [["a", 3]], "'resps' holds no texts"),
        ("resps", {"a": 1}, "'resps' holds no texts"),
        ("filter", "other", "no row of the filter 'none'"),
    ],
)
def test_rows_of_wrong_types_are_told(told, lm_eval, field, value, line):
    change(
        next(lm_eval.rglob("samples_*")),
        lambda row: row.update({field: value, "doc": {}}),
    )
    assert line in told(lm_eval)


@pytest.mark.parametrize(
    "edit",
    [
        lambda top: top.update(results=[]),
        lambda top: top.update(results={"oar_sum": 3}),
        lambda top: top.update(results={"oar_sum": {}}),
        lambda top: top["results"]["oar_sum"].update({"acc,none": float("nan")}),
        lambda top: top["results"]["oar_sum"].update({"acc,none": "high"}),
        lambda top: top.update(configs=[1]) or top.update(group_subtasks=7),
        lambda top: top["configs"]["oar_sum"].update(generation_kwargs={"temperature": "hot"}),
        lambda top: top["configs"]["oar_sum"].update(metadata={"answer_type": "essay"}),
        lambda top: top.update(model_name=["m"]),
    ],
)
def test_results_of_wrong_types_are_told(told, lm_eval, edit):
    path = next(lm_eval.rglob("results_*"))
    change(path, edit)
    told(path)


@pytest.mark.parametrize(
    "edit",
    [
        lambda top: top.update(samples=[1, 2]),
        lambda top: top["samples"][0].update(epoch="1"),
        lambda top: top["samples"][0].update(epoch=10**12),
        lambda top: top["samples"][0].update(id=[1]),
        lambda top: top["samples"][0].update(scores=None),
        lambda top: top["samples"][0].update(output=3),
        lambda top: top["samples"].append(top["samples"][0]),
        lambda top: top["samples"].pop(),
        lambda top: top["results"].update(scores=[]),
        lambda top: top["results"].update(scores=[{"name": "match", "metrics": 3}]),
        lambda top: top["eval"].update(task=7),
        lambda top: top["eval"].update(scorers=7),
        lambda top: top.update(eval=None),
    ],
)
def test_logs_of_wrong_types_are_told(told, tmp_path, edit):
    path = tmp_path / "log.json"
    path.write_bytes(JSON_LOG.read_bytes())
    change(path, edit)
    told(path)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"\xff\xfe{}", b"[" * 100_000, b'{"a": ' * 5000, b"null", b"{} {}"]
)
@pytest.mark.parametrize("name", ["x.json", "x.jsonl", "x.eval", "x.parquet", "x.csv", "x.bin"])
def test_any_other_bytes_are_told(told, tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content)
    told(path)


class Run:
    """Leaves a mark when it is unpickled."""

    def __reduce__(self):
        return os.mkdir, ("ran",)


def test_no_pickle_is_opened(told, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("x.json", "x.eval", "x.parquet", "x.pkl"):
        (tmp_path / name).write_bytes(pickle.dumps(Run()))
        told(tmp_path / name)
    assert not (tmp_path / "ran").exists()


def test_names_out_of_files_stay_inside_out(tmp_path):
    log = tmp_path / "log.json"
    log.write_bytes(JSON_LOG.read_bytes())
    change(log, lambda top: top["eval"].update(model="../../up", task="/etc/\x1b[31m/..\\passwd"))
    [one] = imports(log, tmp_path / "out").values()
    assert one.folder.resolve().is_relative_to(tmp_path / "out")
    assert one.folder.name.isprintable()


@given(st.text())
def test_a_folder_name_is_one_harmless_part(text):
    name = folder_name(text)
    assert name not in ("", ".", "..")
    assert not set(name) & set('/\\\0:"<>|?* ')
    assert not name.startswith(".")
    assert len(name) <= bounded.MAX_NAME


def test_terminal_escapes_are_shown(call, tmp_path):
    log = tmp_path / "log.json"
    log.write_bytes(JSON_LOG.read_bytes())
    change(log, lambda top: top["eval"].update(model="m\x1b[31m\u202e"))
    done = call("import", str(log), "--out", str(tmp_path / "out"))
    assert done.returncode == 0
    assert "\x1b" not in done.stdout + done.stderr
    assert "\u202e" not in done.stdout


def test_a_long_line_is_refused_and_not_held(tmp_path, monkeypatch):
    monkeypatch.setattr(bounded, "MAX_LINE", 1000)
    path = tmp_path / "x.jsonl"
    path.write_text("{}\n" + json.dumps({"a": "b" * 2000}) + "\n")
    with pytest.raises(InputError, match="line 2 is over"):
        list(rows_of(path))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@settings(deadline=None)
@given(
    st.dictionaries(st.text().filter(lambda key: key != "samples"), JSON, max_size=4),
    st.lists(JSON, max_size=4), st.integers(1, 9), st.sampled_from([None, 1]), st.booleans(),
)  # fmt: skip
def test_a_stream_of_any_chunks_is_what_json_says(
    tmp_path_factory, rest, items, chunk, indent, asc
):
    path = tmp_path_factory.mktemp("stream") / "x.json"
    value = {**rest, "samples": items}
    text = json.dumps(value, indent=indent, ensure_ascii=asc)
    path.write_bytes(
        text.encode("utf-8", "surrogatepass") if asc else text.encode(errors="replace")
    )
    before, bounded.CHUNK = bounded.CHUNK, chunk
    try:
        found = list(members(path, "samples"))
    finally:
        bounded.CHUNK = before
    expected = json.loads(path.read_text())
    assert [item for key, item in found if key == "samples"] == expected.pop("samples")
    assert {key: item for key, item in found if key != "samples"} == expected


def test_a_large_log_is_read_in_little_memory(tmp_path):
    """200 MB of samples: the peak of Python's own allocations stays under 40 MB."""
    import tracemalloc

    path = tmp_path / "large.json"
    with path.open("w") as file:
        file.write('{"version": 2, "samples": [')
        for number in range(100):
            sample = json.dumps({"id": number, "events": ["x" * 2_000_000]})
            file.write(sample + (", " if number < 99 else ""))
        file.write("]}")
    tracemalloc.start()
    assert sum(key == "samples" for key, _ in members(path, "samples")) == 100
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 40e6


def test_fixtures_hold_no_path_of_a_machine():
    for path in DATA.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            if path.suffix == ".eval":
                data = b"".join(unpacked().values())
            assert b"/home/" not in data
            assert b"/root/" not in data
