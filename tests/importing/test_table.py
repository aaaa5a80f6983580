"""Tables of numbers: what is needed, which units are read, and that nothing is guessed."""

import json

import pytest

from oar_bench.errors import InputError
from oar_bench.evaluation.intervals import wilson_interval
from tests.importing.conftest import imports


def table(tmp_path, text, name="numbers.csv"):
    path = tmp_path / name
    path.write_text(text)
    return path


def test_a_csv_of_numbers(tmp_path):
    path = table(
        tmp_path,
        "model,task,metric,value,n,stderr,source,protocol\n"
        'm,gsm8k,acc,53.2%,500,2.2%,"Table 2, row 3",8-shot\n'
        "m,math,acc,0.25,,,,\n",
    )
    done = imports(path, tmp_path / "out")
    gsm = done["gsm8k"].results
    expected = wilson_interval(0.532, 500)
    assert gsm["metrics"]["avg@k"] == {
        "value": 0.532, "low": expected.low, "high": expected.high, "se": pytest.approx(0.022),
        "df": None, "n": 500, "method": "Wilson",
    }  # fmt: skip
    assert gsm["imported"]["source"] == "Table 2, row 3"
    assert gsm["settings"]["protocol"] == "8-shot"
    bare = done["math"].results
    assert bare["metrics"]["avg@k"]["low"] is None
    assert bare["metrics"]["avg@k"]["value"] == 0.25
    assert bare["imported"]["notes"] == ["no source is named", "no samples: no paired test"]


def test_json_says_the_same(tmp_path):
    row = {"model": "m", "task": "t", "value": 0.5, "n": 10}
    listed = table(tmp_path, json.dumps([row]), "a.json")
    wrapped = table(tmp_path, json.dumps({"results": [row]}), "b.json")
    found = [imports(p, tmp_path / p.stem)["t"].results["metrics"] for p in (listed, wrapped)]
    assert found[0] == found[1]
    assert found[0]["avg@k"]["n"] == 10


HEAD = "model,task,value,n,stderr\n"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("model,task\nm,t\n", "no column 'value'; needed are model, task, value"),
        ("model,task,valu\nm,t,1\n", "unknown column 'valu'; did you mean 'value'?"),
        (HEAD + "m,t,53.2,,\n", "line 2: value 53.2 is no share; write 0.532, or 53.2% with its"),
        (HEAD + "m,t,-0.1,,\n", "value -0.1 is no share"),
        (HEAD + "m,t,nan,,\n", "line 2: value is nan, no finite number"),
        (HEAD + "m,t,1e999,,\n", "value is inf, no finite number"),
        (HEAD + "m,t,many,,\n", "value is 'many', no number"),
        (HEAD + "m,t,,,\n", "line 2: no value"),
        (HEAD + "m,t,0.5,ten,\n", "n is 'ten', no whole number"),
        (HEAD + "m,t,0.5,-3,\n", "n is '-3', no whole number"),
        (HEAD + "m,t,0.5,0,\n", "n is 0; leave it empty where it isn't known"),
        (HEAD + "m,t,50%,10,0.02\n", "stderr is no share, or in another unit than value"),
        (HEAD + "m,t,0.5,10,99\n", "stderr is no share, or in another unit than value"),
        (HEAD + f"{'m' * 1001},t,0.5,,\n", "name of a model or task is over 1000 characters"),
        (HEAD + "m,t,0.5\n", "line 2: it has 3 fields, the header 5"),
        (HEAD + "m,t,0.5,1,0.1,9\n", "line 2: it has 6 fields, the header 5"),
        (HEAD, "there is no row in this file"),
        ("", "no column 'model'"),
        (HEAD + "m,t,0.5,,\nm,t,0.6,,\n", "two results of m on t"),
        (HEAD + '"m,t,0.5', "no CSV"),
    ],
)
def test_a_row_that_cannot_be_read_is_told(tmp_path, text, line):
    with pytest.raises(InputError) as error:
        imports(table(tmp_path, text), tmp_path / "out")
    assert line in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", [None, "", 7, {"a": 1}, ["m"]])
def test_a_model_of_json_is_named_by_a_text(tmp_path, name):
    path = table(tmp_path, json.dumps([{"model": name, "task": "t", "value": 0.5}]), "a.json")
    with pytest.raises(InputError, match=r"entry 1: (no model|model is .*, no text)"):
        imports(path, tmp_path / "out")


def test_no_number_is_minus_zero(tmp_path):
    found = imports(table(tmp_path, HEAD + "m,t,-0,3,\n"), tmp_path / "out")
    assert str(found["t"].results["metrics"]["avg@k"]["value"]) == "0.0"


def test_a_csv_of_something_else_in_a_folder_is_passed_over(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    table(folder, HEAD + "m,t,0.5,3,\n")
    table(folder, "claim,verdict\nC1,supported\n", "claims.csv")
    table(folder, '"unended', "torn.csv")
    assert [*imports(folder, tmp_path / "out")] == ["t"]
    with pytest.raises(InputError, match="unknown column 'claim'"):
        imports(folder / "claims.csv", tmp_path / "more")
