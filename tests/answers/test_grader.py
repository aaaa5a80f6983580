"""The grader's own behaviour: statuses, settings, memo, spans, batches."""

from __future__ import annotations

import pytest

from oar_bench.answers import Grader, extract_answer


def test_statuses() -> None:
    with Grader() as grader:
        assert grader.grade("\\boxed{4}", "4").status == "correct"
        assert grader.grade("\\boxed{5}", "4").status == "wrong"
        assert grader.grade("I do not know.", "4").status == "no_answer"
        assert grader.grade("", "4").status == "no_answer"
        assert grader.grade("\\boxed{4}", " ").status == "gold_error"


@pytest.mark.parametrize(
    ("response", "status"),
    [
        ("so \\boxed{4} and then I check", "correct"),
        ("so \\boxed{4", "truncated"),
        ("The answer is 4", "truncated"),
        ("The answer is 4. I check", "correct"),
        ("We have 2+2 = 4", "truncated"),
        ("<think>still", "truncated"),
        ("<answer>4</answer>", "correct"),
    ],
)
def test_truncated_responses_need_a_complete_answer(response: str, status: str) -> None:
    with Grader() as grader:
        assert grader.grade(response, "4", truncated=True).status == status


@pytest.mark.parametrize(
    "response",
    [
        "So $x = \\boxed{\\frac{1}{2}}$.",
        "#### 42",
        "The answer is **42**.",
        "<answer> 7 </answer>",
        "答案是13。",
        "They meet at 3:30.",
        "\\boxed{5} or maybe \\boxed{6}",
        "<think>1</think> The final answer is: $x=2$ or $x=3$. Done",
    ],
)
def test_the_span_is_the_answer(response: str) -> None:
    found = extract_answer(response)
    assert found is not None
    assert response[found.start : found.end] == found.text
    assert 0 <= found.mark_start <= found.start


def test_exact_type_takes_the_rest_of_the_line() -> None:
    with Grader(answer_type="exact") as grader:
        assert grader.grade("work\n#### 7 4 6  2 4\n", "7 4 6 2 4").correct
        assert not grader.grade("#### 7 4 6 2 5", "7 4 6 2 4").correct
        assert not grader.grade("#### 74624", "7 4 6 2 4").correct
        assert grader.grade("7 4 6 2 4", "7 4 6 2 4").status == "no_answer"


def test_extract_modes() -> None:
    text = "#### 5\nQuestion: and now?\n#### 6"
    with Grader(answer_type="number", extract="gsm8k") as grader:
        assert grader.grade(text, "5").correct
    with Grader(extract="boxed") as grader:
        assert grader.grade("The answer is 5.", "5").status == "no_answer"
        assert grader.grade("\\boxed{5}", "5").correct


def test_tolerance_only_where_declared() -> None:
    with Grader() as exact, Grader(tolerance=0.01) as loose:
        assert not exact.compare("3.14", "\\pi").correct
        assert loose.compare("3.14", "\\pi").correct
        assert not loose.compare("3.2", "\\pi").correct
        assert loose.compare("(1.001, 2)", "(1, 2)").correct
        assert not loose.compare("2, 1.001", "1").correct


def test_memo_answers_again() -> None:
    with Grader() as grader:
        first = grader.grade("\\boxed{(x+1)^2}", "x^2+2x+1")
        second = grader.grade("\\boxed{(x+1)^2}", "x^2+2x+1")
    assert (first.stage, second.stage) == ("algebra", "memo")
    assert first.status == second.status == "correct"


def test_grade_many_keeps_the_order() -> None:
    pairs: list[tuple[str, str] | tuple[str, str, bool]] = [
        ("\\boxed{1}", "1"),
        ("\\boxed{\\int_0^1 2x dx}", "1"),
        ("There is nothing here.", "1"),
        ("The answer is 1", "1", True),
        ("\\boxed{\\int_0^2 2x dx}", "1"),
    ]
    with Grader(workers=2) as grader:
        grades = grader.grade_many(pairs)
    assert [g.status for g in grades] == ["correct", "correct", "no_answer", "truncated", "wrong"]


def test_explanation_names_the_stages() -> None:
    with Grader() as grader:
        grade = grader.grade("\\boxed{x+1}", "1+x", explain=True)
    assert "boxed" in grade.explanation[0]
    assert grade.explanation[1].startswith("algebra")


def test_hedged_boxes_are_wrong_for_one_gold() -> None:
    with Grader() as grader:
        assert not grader.grade("\\boxed{5} or \\boxed{6}", "6").correct
        assert grader.grade("\\boxed{5} or \\boxed{6}", "5 \\text{ or } 6").correct
        assert grader.grade("\\boxed{5} and \\boxed{6}", "5, 6").correct


@pytest.mark.parametrize("bad", [{"answer_type": "poem"}, {"extract": "nowhere"}, {"deadline": 0}])
def test_bad_settings_are_refused(bad: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="must be"):
        Grader(**bad)  # type: ignore[arg-type]
