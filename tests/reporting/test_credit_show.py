"""The command `credit show` from end to end, and each way to name a response wrongly."""

from __future__ import annotations

import json

import pytest

from oar_bench.config import METHODS, CreditSettings
from oar_bench.credit.assign import assign
from oar_bench.errors import InputError
from oar_bench.records import read_jsonl
from oar_bench.reporting.credit_page import GENERATOR
from oar_bench.reporting.credit_source import choose
from oar_bench.training.token_credit import token_credit
from tests.credit.batches import PROMPTS, RESPONSES, batch_of, own
from tests.reporting.synthetic import write_rows

ROWS = [
    {"problem": "a", "prompt": PROMPTS[0], "response": RESPONSES[0], "gold": "7", "seed": 11,
     "finish_reason": "stop", "response_tokens": 10, "step": 1, "advantage": 0.5},
    {"problem": "b", "prompt": PROMPTS[1], "response": RESPONSES[1], "gold": "0 4", "seed": 12},
    {"problem": "a", "prompt": PROMPTS[0], "response": RESPONSES[2], "gold": "7", "seed": 13},
]  # fmt: skip


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "rollouts.jsonl"
    write_rows(path, ROWS)
    return path


def of_file(file, row=None, problem=None, sample=None):
    return choose(None, None, file, row, problem, sample)


def test_a_row_by_its_number_and_by_its_problem(file):
    assert of_file(file).row["response"] == RESPONSES[0]
    assert of_file(file, row=2).row["response"] == RESPONSES[1]
    assert of_file(file, problem="a").row["seed"] == 11
    chosen = of_file(file, problem="a", sample=0)
    assert chosen.name == {"step": 1, "problem": "a", "sample": 0}
    assert chosen.source == f"{file}: row 1, problem a, step 1"


def test_samples_name_their_number_and_their_prompts_stand_beside(tmp_path):
    write_rows(tmp_path / "problems.jsonl", [{"problem": "a", "prompt": "1 + 1 ="}])
    rows = [{"problem": "a", "sample": s, "response": f"#### {s}"} for s in (3, 0)]
    rows += [{"problem": "b", "sample": 0, "response": "#### 1"}]
    path = tmp_path / "samples.jsonl"
    write_rows(path, rows)
    chosen = of_file(path, problem="a", sample=3)
    assert (chosen.row["prompt"], chosen.row["response"]) == ("1 + 1 =", "#### 3")
    assert chosen.name == {"problem": "a", "sample": 3}
    assert of_file(path, problem="a").row["response"] == "#### 0"
    with pytest.raises(
        InputError, match=r"row 3: it has no text `prompt`; .*, nor has problems\.jsonl"
    ):
        of_file(path, row=3)


def test_without_numbers_samples_stand_in_their_order(tmp_path):
    write_rows(tmp_path / "x.jsonl", [{"problem": 7, "prompt": "", "response": t} for t in "ab"])
    assert of_file(tmp_path / "x.jsonl", problem="7", sample=1).row["response"] == "b"


def test_token_ids_of_the_file_are_used_as_they_are(call, start, tokenizer, tmp_path):
    prompt, response = tokenizer("1 + 1 =")["input_ids"], tokenizer("so 2 ; #### 2")["input_ids"]
    write_rows(tmp_path / "x.jsonl", [{"prompt_ids": prompt, "response_ids": response},
                                      {"prompt_ids": [1], "response_ids": [10**6]},
                                      {"prompt_ids": 1, "response_ids": [1]}])  # fmt: skip
    common = ("credit", "show", str(start), "--responses", str(tmp_path / "x.jsonl"), "--json")
    found = json.loads(call(*common).stdout)
    assert (found["ids"], found["prompt"], found["response"]) == (
        response, "1 + 1 =", "so 2 ; #### 2"
    )  # fmt: skip
    assert found["notes"] == []
    for row, said in (("2", "the model's vocabulary"), ("3", "`prompt_ids` are no token ids")):
        done = call(*common, "--row", row)
        assert done.returncode == 2
        assert said in done.stderr


def test_lone_surrogates_become_replacement_characters():
    chosen = choose("a", "lone \ud83d, whole \U0001f600", None, None, None, None)
    assert chosen.row["response"] == "lone \ufffd, whole \U0001f600"


WRONG = [
    ({"row": 4}, r"row 4 is not in this file of 3 rows; use --row 1\.\.3"),
    ({"problem": "c"}, "no row is of problem 'c'"),
    ({"problem": "a", "sample": 2}, "problem a has 2 samples, none is 2"),
    ({"row": 1, "problem": "a"}, "a row and a problem are given"),
    ({"sample": 1}, "no problem is named"),
]


@pytest.mark.parametrize(("names", "said"), WRONG)
def test_a_row_that_is_not_there(file, names, said):
    with pytest.raises(InputError, match=said):
        of_file(file, **names)


def test_a_row_without_a_response(tmp_path):
    write_rows(tmp_path / "x.jsonl", [{"prompt": "a"}, {"prompt": 3, "response": "b"}])
    with pytest.raises(InputError, match="row 1: it has no text `response`"):
        of_file(tmp_path / "x.jsonl")
    with pytest.raises(InputError, match="row 2: it has no text `prompt`"):
        of_file(tmp_path / "x.jsonl", row=2)


def test_a_last_line_without_its_newline_is_a_row(tmp_path):
    (tmp_path / "x.jsonl").write_text(json.dumps(ROWS[0]) + "\n" + json.dumps(ROWS[1]))
    assert of_file(tmp_path / "x.jsonl", row=2).row["gold"] == "0 4"


def test_credit_of_one_response_is_that_of_a_batch(model, tokenizer):
    """The same numbers as `assign` gives the response in the midst of a padded batch."""
    batch, settings = batch_of(tokenizer), CreditSettings()
    prompt = tokenizer(PROMPTS[1])["input_ids"]
    response = [*tokenizer(RESPONSES[1])["input_ids"], tokenizer.eos_token_id]
    found = token_credit(
        model, tokenizer, prompt, response, RESPONSES[1], 0, ["oar-p", "uniform"], settings
    )
    whole = assign("oar-p", model, batch, settings, tokenizer.pad_token_id)
    one = found["methods"]["oar-p"]
    assert one["weight"] == pytest.approx(own(whole.weights, batch, 1).tolist(), rel=1e-3)
    assert one["importance"] == pytest.approx(own(whole.importance, batch, 1).tolist(), rel=1e-3)
    assert found["scored"] == own(batch.weighted(settings), batch, 1).tolist()
    assert found["sections"] == (["reasoning"] * 13 + ["prefix"] + ["answer"] * 2 + ["rest"])
    assert found["methods"]["uniform"]["weight"] == [1.0] * 17
    assert "".join(found["pieces"]) == RESPONSES[1]


def test_every_method_of_the_registry_at_once(call, start, file, tmp_path):
    out = tmp_path / "page.html"
    done = call("credit", "show", str(start), "--responses", str(file), "--method",
                ",".join(METHODS), "--out", str(out), "--json")  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert list(found["methods"]) == list(METHODS)
    assert (found["answer_type"], found["found"], found["notes"], found["names"][-1]) == (
        "math", True, [], "<eos>"
    )  # fmt: skip
    scored = sum(found["scored"])
    for credit in found["methods"].values():
        weights = [w for w, yes in zip(credit["weight"], found["scored"], strict=True) if yes]
        assert sum(weights) == pytest.approx(scored, rel=1e-5)
    page = out.read_text()
    for name in METHODS:
        assert f"<h3>{name}</h3>" in page


@pytest.mark.parametrize("method", ["oar-p", "random"])
def test_the_weights_are_those_that_credit_weights_writes(call, start, tmp_path, method):
    path, out = tmp_path / "mine.jsonl", tmp_path / "weights.jsonl"
    rows = [{key: value for key, value in row.items() if key in ("prompt", "response")}
            for row in ROWS]  # fmt: skip
    write_rows(path, rows)
    common = (str(start), "--responses", str(path), "--method", method)
    assert call("credit", "weights", *common, "--out", str(out)).returncode == 0
    for number, row in enumerate(read_jsonl(out), start=1):
        found = json.loads(call("credit", "show", *common, "--row", str(number), "--json").stdout)
        assert found["methods"][method]["weight"] == pytest.approx(row["weights"], rel=1e-3)


def test_the_page_is_the_default_and_only_a_page_is_overwritten(call, start, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    texts = ("--prompt", PROMPTS[0], "--response", RESPONSES[0])
    done = call("credit", "show", str(start), *texts)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "credit.html"), done.stderr
    assert GENERATOR in (tmp_path / "credit.html").read_text()
    assert '" ####"' in done.stdout  # no terminal: a table
    assert call("credit", "show", str(start), *texts, "--q", "0.25").returncode == 0
    assert "<td>0.25</td>" in (tmp_path / "credit.html").read_text()
    (tmp_path / "credit.html").write_text("<p>mine</p>")
    again = call("credit", "show", str(start), *texts)
    assert again.returncode == 2
    assert again.stderr.endswith("no page of `credit show`; choose another --out\n")
    assert (tmp_path / "credit.html").read_text() == "<p>mine</p>"
    printed = call("credit", "show", str(start), *texts, "--json", "--beta", "1")
    assert json.loads(printed.stdout)["settings"]["beta"] == 1.0
    assert [path.name for path in tmp_path.iterdir()] == ["credit.html"]


def test_no_answer_and_another_tokenisation_are_told(call, start, tmp_path):
    row = {"prompt": PROMPTS[0], "response": "so unheard of", "response_tokens": 9, "model": "x"}
    write_rows(tmp_path / "rows.jsonl", [row])
    done = call("credit", "show", str(start), "--responses", str(tmp_path / "rows.jsonl"),
                "--answer-type", "exact", "--out", str(tmp_path / "page.html"))  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "no answer was found in this response: every weight is 1" in done.stdout
    assert "note: 9 tokens were sampled" in done.stdout
    assert "note: This tokenizer doesn't give the text back" in done.stdout
    assert "note: Another checkpoint (x) sampled this response" in done.stdout


BAD = [
    (["CKPT"], "give --prompt TEXT --response TEXT, or --responses FILE --row N"),
    (["CKPT", "--prompt", "a"], "--response: it is missing"),
    (["CKPT", "--response", "a"], "--prompt: it is missing"),
    (["CKPT", "--response", "a", "--prompt", "b", "--responses", "FILE"], "give only one"),
    (["CKPT", "--response", "a", "--prompt", "b", "--row", "2"], "--row: there is no file"),
    (["CKPT", "--responses", "FILE", "--row", "9"], "row 9 is not in this file of 3 rows"),
    (["CKPT", "--responses", "FILE", "--row", "0"], "--row"),
    (["CKPT", "--responses", "nowhere.jsonl"], "nowhere.jsonl: no such file"),
    (["CKPT", "--responses", "FILE", "--method", "oarp"], "did you mean 'oar-p'?"),
    (["CKPT", "--responses", "FILE", "--method", ","], "nothing is given"),
    (["CKPT", "--responses", "FILE", "--q", "2"], "credit.q"),
    (["CKPT", "--responses", "FILE", "--pfinal", "first"], "credit.pfinal"),
    (["CKPT", "--responses", "FILE", "--recipe", "tinny"], "did you mean 'tiny'?"),
    (["CKPT", "--responses", "FILE", "--answer-type", "maths"], "did you mean 'math'?"),
    (["CKPT", "--responses", "FILE", "--out", "page.md"], "ends in .html"),
    (["CKPT", "--responses", "FILE", "--out", "."], "--out"),
    (["CKPT", "--prompt", "", "--response", "7"], "the prompt has no token"),
    (["CKPT", "--prompt", "1 + 1 =", "--response", ""], "the response has no token"),
    (["CKPT", "--prompt", "1 + 1 =", "--response", "7 " * 500], "the model's context is 48"),
    (["nowhere", "--responses", "FILE"], "nowhere: no such checkpoint folder"),
    ([".", "--responses", "FILE"], "no config.json"),
]


@pytest.mark.parametrize(("words", "said"), BAD, ids=[" ".join(w)[:60] for w, _ in BAD])
def test_bad_input_is_one_line_and_exit_code_2(call, start, file, words, said, monkeypatch):
    folder = file.parent / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    known = {"CKPT": str(start), "FILE": str(file)}
    done = call("credit", "show", *(known.get(word, word) for word in words))
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert said in done.stderr
    assert list(folder.iterdir()) == []


def test_the_help_has_an_example(call):
    done = call("credit", "show", "--help")
    assert done.returncode == 0
    assert "oar-bench credit show CHECKPOINT" in done.stdout


def test_a_file_without_rows(tmp_path, start, call):
    empty = tmp_path / "empty.jsonl"
    empty.write_text("")
    done = call("credit", "show", str(start), "--responses", str(empty))
    assert done.returncode == 2
    assert done.stderr == f"oar-bench: {empty}: there is no row in this file\n"


def test_a_folder_where_a_file_is_expected(tmp_path, start, call):
    for command in (("show",), ("fidelity",), ("weights", "--out", str(tmp_path / "w.jsonl"))):
        done = call("credit", command[0], str(start), "--responses", str(tmp_path), *command[1:])
        assert done.returncode == 2
        assert "a file of JSON lines is expected, not a folder" in done.stderr
