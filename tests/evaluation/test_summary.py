"""The summary of an evaluation, against numbers counted by hand."""

import json

import pytest

from oar_bench.evaluation.summary import summarize


def sample(problem, index, response, finish="stop", tokens=10):
    return {"problem": problem, "sample": index, "response": response, "finish_reason": finish,
            "response_tokens": tokens}  # fmt: skip


def score(problem, index, status, extracted=None):
    return {"problem": problem, "sample": index, "status": status, "correct": status == "correct",
            "extracted": extracted}  # fmt: skip


SAMPLES = [
    sample("a", 0, "x"), sample("a", 1, "x"), sample("a", 2, "y", "length", 40),
    sample("b", 0, "\ud83d"), sample("b", 1, "q"), sample("b", 2, "r"),
]  # fmt: skip
SCORES = [
    score("b", 2, "correct", "4"), score("a", 0, "correct", "4"), score("a", 1, "correct", "4.0"),
    score("a", 2, "truncated"), score("b", 0, "no_answer"), score("b", 1, "odd", "5"),
]  # fmt: skip


def test_by_hand():
    result = summarize(iter(SAMPLES), iter(SCORES))
    assert (result["n_problems"], result["n_samples"], result["k"]) == (2, 6, 3)
    assert result["avg@k"]["value"] == pytest.approx(0.5)
    assert result["pass@1"] == result["avg@k"]
    assert result["pass@2"]["value"] == pytest.approx((1 + 2 / 3) / 2)
    assert result["pass@3"]["value"] == 1.0
    assert result["pass@3"]["method"] == "Wilson"
    assert result["truncated"] == pytest.approx(1 / 6)
    assert result["no_answer"] == pytest.approx(1 / 6)
    assert result["statuses"] == {"correct": 3, "no_answer": 1, "truncated": 1, "odd": 1}
    assert list(result["statuses"]) == ["correct", "no_answer", "truncated", "odd"]
    assert result["response_tokens"] == pytest.approx(15)
    # a: both voters are right; b: one right, one wrong, one silent
    assert result["maj@3"]["value"] == pytest.approx((1 + 1 / 2) / 2)
    assert result["maj@2"]["value"] == pytest.approx((1 + (1 + 1 / 2) / 3) / 2)
    assert result["maj_votes"] == {"comparisons": 0, "skipped": 0, "monte_carlo_se": 0.0}
    assert result["tokens"] == {"mean": 15.0, "median": 10.0, "p90": 25.0}
    assert result["budget"] == [[16, 0.5], [32, 0.5], [40, 0.5]]
    assert result["equal_completions"] == pytest.approx(2 / 6)
    assert json.loads(json.dumps(result, allow_nan=False)) == result


def test_one_sample_a_problem_has_no_run_sd():
    result = summarize([sample("a", 0, "x")], [score("a", 0, "wrong")])
    assert result["run_sd"] is None
    assert result["avg@k"]["value"] == 0
    assert "pass@2" not in result


@pytest.mark.parametrize(
    ("samples", "scores", "message"),
    [
        ([*SAMPLES, SAMPLES[0]], SCORES, "sample 0 of problem 'a' occurs twice"),
        (SAMPLES, [*SCORES, SCORES[0]], "sample 2 of problem 'b' is scored twice"),
        (SAMPLES[1:], SCORES, "score for sample 0 of problem 'a', but no such sample"),
        ([*SAMPLES, sample("c", 0, "")], SCORES, "problem 'c' has samples but no scores"),
        ([*SAMPLES, sample("b", 3, "")], SCORES, "problem 'b' has 4 samples but 3 scores"),
        ([], [], "nothing was evaluated"),
    ],
)
def test_rows_that_do_not_fit_are_refused_by_name(samples, scores, message):
    with pytest.raises(ValueError, match=message):
        summarize(samples, scores)


def test_the_budget_ends_at_the_runs_own_cap():
    rows = [sample("a", 0, "x", tokens=3)]
    assert summarize(rows, [score("a", 0, "correct", "1")], cap=64)["budget"] == [
        [4, 1.0], [64, 1.0],
    ]  # fmt: skip


def test_of_an_unfinished_evaluation_only_whole_problems_count():
    samples = [*SAMPLES, sample("c", 0, "z")]
    scores = [*SCORES, score("c", 0, "wrong", "1")]
    with pytest.raises(ValueError, match="'c' has 1 scored samples but"):
        summarize(samples, scores)
    result = summarize(samples, scores, k=3)
    assert (result["n_problems"], result["left_out_problems"]) == (2, 1)
    assert result["avg@k"] == summarize(SAMPLES, SCORES)["avg@k"]
    with pytest.raises(ValueError, match="no problem has all its 3 samples yet"):
        summarize([sample("c", 0, "z")], [score("c", 0, "wrong")], k=3)
