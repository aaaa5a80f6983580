"""Equal under reformatting; unequal under a changed digit, sign, end of interval or order."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from oar_bench.answers.decide import decide
from oar_bench.answers.extract import extract_answer
from oar_bench.answers.normalize import clean

integers = st.integers(min_value=-(10**12), max_value=10**12)
small = st.integers(min_value=-99, max_value=99)
positive = st.integers(min_value=1, max_value=9_999)
fractions = st.fractions(min_value=-1000, max_value=1000, max_denominator=997)


def same(answer: str, gold: str) -> bool:
    verdict = decide(answer, gold, memo=False).verdict
    assert verdict is not None
    return verdict


def latex(value: Fraction) -> str:
    sign = "-" if value < 0 else ""
    return f"{sign}\\frac{{{abs(value.numerator)}}}{{{value.denominator}}}"


WRAPPERS = [
    "{}", "${}$", "\\boxed{{{}}}", "{}.", " {} ", "\\left({}\\right)", "\\({}\\)",
    "\\displaystyle {}",
    "x = {}", "{} \\text{{ cm}}", "{{{}}}", "\\mathbf{{{}}}", "**{}**", "\\textcolor{{red}}{{{}}}",
]  # fmt: skip


@given(integers, st.sampled_from(WRAPPERS))
def test_wrapping_an_integer_keeps_its_value(value: int, wrapper: str) -> None:
    assert same(wrapper.format(value), str(value))


@given(integers, st.sampled_from([",", "{,}", "\\,", ",\\!", "\\ "]))
def test_thousands_marks_keep_the_value(value: int, mark: str) -> None:
    assert same(f"{value:,}".replace(",", mark), str(value))


@given(integers, st.data())
def test_a_changed_digit_changes_the_value(value: int, data: st.DataObject) -> None:
    digits = list(str(abs(value)))
    place = data.draw(st.integers(0, len(digits) - 1))
    digits[place] = data.draw(st.sampled_from([d for d in "0123456789" if d != digits[place]]))
    changed = ("-" if value < 0 else "") + "".join(digits)
    if int(changed) != value:
        assert not same(changed, str(value))


@given(fractions)
def test_spellings_of_a_fraction(value: Fraction) -> None:
    gold = latex(value)
    assert same(f"{value.numerator}/{value.denominator}", gold)
    assert same(gold.replace("\\frac", "\\dfrac"), gold)
    assert same(latex(Fraction(value.numerator * 3)), latex(value * 3)) == (
        value.numerator * 3 == value * 3
    )


@given(fractions)
def test_a_changed_sign_changes_a_fraction(value: Fraction) -> None:
    if value:
        assert not same(latex(-value), latex(value))


@given(small, positive)
def test_mixed_number_is_the_sum(whole: int, numerator: int) -> None:
    denominator = numerator + 1
    sign = "-" if whole < 0 else ""
    value = Fraction(abs(whole)) + Fraction(numerator, denominator)
    value = -value if whole < 0 else value
    if whole:
        text = f"{sign}{abs(whole)}\\frac{{{numerator}}}{{{denominator}}}"
        assert same(text, f"{value.numerator}/{value.denominator}")
        assert not same(text, str(Fraction(whole) * Fraction(numerator, denominator)))


@given(st.decimals(min_value=0, max_value=10**6, places=4, allow_nan=False))
def test_scientific_notation(value: object) -> None:
    plain = f"{value:f}"
    for exponent in (-3, 2):
        mantissa = Fraction(plain) / Fraction(10) ** exponent
        text = f"{mantissa.numerator}/{mantissa.denominator}"
        assert same(f"\\frac{{{text.replace('/', '}{')}}} \\times 10^{{{exponent}}}", plain)


@given(st.lists(small, min_size=2, max_size=6, unique=True), st.randoms())
def test_lists_are_unordered_and_tuples_are_not(values: list[int], random: object) -> None:
    shuffled = list(values)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    gold, answer = ", ".join(map(str, values)), ", ".join(map(str, shuffled))
    assert same(answer, gold)
    assert same(f"\\{{{answer}\\}}", gold)
    assert same(f"({answer})", f"({gold})") == (shuffled == values)


@given(st.lists(small, min_size=2, max_size=5, unique=True))
def test_a_missing_item_is_noticed(values: list[int]) -> None:
    gold = ", ".join(map(str, values))
    assert not same(", ".join(map(str, values[:-1])), gold)
    assert not same(gold, ", ".join(map(str, [*values, 1000])))


@given(small, st.integers(1, 50), st.sampled_from(["()", "[]", "(]", "[)"]))
def test_interval_and_inequality(low: int, width: int, ends: str) -> None:
    high = low + width
    gold = f"{ends[0]}{low}, {high}{ends[1]}"
    left = "\\le" if ends[0] == "[" else "<"
    right = "\\le" if ends[1] == "]" else "<"
    assert same(f"{low} {left} x {right} {high}", gold)
    assert same(gold, f"{low} {left} x {right} {high}")
    assert same(f"x \\in {gold}", gold)
    for other in ("()", "[]", "(]", "[)"):
        if other != ends:
            assert not same(f"{other[0]}{low}, {high}{other[1]}", gold)
    assert not same(f"{ends[0]}{low}, {high + 1}{ends[1]}", gold)


@given(small, small, small)
def test_polynomials_expand(a: int, b: int, c: int) -> None:
    product = f"(x+{a})(x+{b})({c})"
    expanded = f"{c}x^2+{c * (a + b)}x+{a * b * c}"
    assert same(product, expanded)
    assert not same(product, f"{expanded}+1")


@given(positive, st.integers(1, 30))
def test_radicals_simplify(n: int, k: int) -> None:
    assert same(f"\\sqrt{{{n * k * k}}}", f"{k}\\sqrt{{{n}}}")
    assert not same(f"\\sqrt{{{n * k * k + 1}}}", f"{k}\\sqrt{{{n}}}")
    assert same(f"\\frac{{{k}}}{{\\sqrt{{{n}}}}}", f"\\frac{{{k}\\sqrt{{{n}}}}}{{{n}}}")


@given(small, small)
def test_complex_parts_commute_and_count(a: int, b: int) -> None:
    assert same(f"{b}i+{a}", f"{a}+{b}i")
    if b:
        assert not same(f"{a}-{b}i", f"{a}+{b}i")


@given(st.integers(1, 10**6), st.integers(2, 9))
def test_bases_keep_their_subscript(value: int, base: int) -> None:
    digits, rest = "", value
    while rest:
        digits, rest = str(rest % base) + digits, rest // base
    assert same(f"{digits}_{{{base}}}", f"{digits}_{base}")
    assert not same(f"{digits}_{base + 1}", f"{digits}_{base}")


@given(st.integers(2, 50), st.integers(100, 10**9))
def test_huge_powers(base: int, exponent: int) -> None:
    assert same(f"{base}^{{{2 * exponent}}}", f"({base}^{{{exponent}}})^2")
    assert not same(f"{base}^{{{exponent + 1}}}", f"({base}^{{{exponent}}})")


@given(st.integers(0, 1000))
def test_percent(value: int) -> None:
    assert same(f"{value}\\%", str(value))
    assert same(f"{value}\\%", latex(Fraction(value, 100)))
    if value:
        assert not same(f"{value}\\%", str(value * 100))


@given(st.text(max_size=60))
def test_any_text_is_cleaned_and_decided(text: str) -> None:
    clean(text)
    decide(text, "42", memo=False)
    decide("42", text, memo=False)


@given(st.text(alphabet="\\{}()[]$^_.,0123456789xfracsqrtboxed<>=|& -+", max_size=80))
@settings(max_examples=400)
def test_any_latex_is_decided(text: str) -> None:
    decide(text, "\\frac{1}{2}", memo=False)
    found = extract_answer(text)
    assert found is None or text[found.start : found.end] == found.text


@given(st.text(max_size=40), integers, st.text(alphabet="abc ,.\n", max_size=40))
def test_a_box_is_found_where_it_stands(before: str, value: int, after: str) -> None:
    response = f"{before} $\\boxed{{{value}}}$ {after}"
    found = extract_answer(response)
    assert found is not None
    assert found.text == str(value)
    assert response[found.start : found.end] == found.text
    assert response[found.mark_start :].startswith("\\boxed{")
