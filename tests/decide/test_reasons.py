"""Why a pair is on the list, in codes and words."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ew_pipeline.core.errors import UsageError
from ew_pipeline.decide import reasons as module
from ew_pipeline.decide.reasons import CODES, codes_and_words, in_words, percent, short

NAN = float("nan")


def reasons(*columns):
    return module.reasons(*columns).to_pylist()


@pytest.mark.parametrize(
    ("units", "expected", "p", "level", "text"),
    [
        (0, 6.2, 0.9, NAN, "ZERO_SALES: zero sales against expected 6.2"),
        (3, 17.4, 0.9, NAN, "BELOW_20_PCT: below 20% of expected (3 of 17.4)"),
        (7, 15.0, 0.9, NAN, "BELOW_50_PCT: below half of expected (7 of 15)"),
        (9, 11.0, 0.9, NAN, "BELOW_EXPECTED: below expected (9 of 11)"),
        (
            0,
            6.2,
            0.9,
            7.13,
            "ZERO_SALES: zero sales against expected 6.2; "
            "BELOW_OWN_LEVEL: below half of its own level (0 of 7.1)",
        ),
        (
            2,
            20.0,
            0.08,
            NAN,
            "BELOW_20_PCT: below 20% of expected (2 of 20); "
            "COSTLY_MISS: P = 8%, listed because a miss is costly",
        ),
    ],
    ids=["zero", "a fifth", "half", "below", "own level", "stakes"],
)
def test_known_reasons_most_telling_first(units, expected, p, level, text):
    assert reasons([units], [expected], [p], [level]) == [text]


def test_a_limit_itself_is_not_below_it():
    assert reasons([2, 5, 5], [10.0, 10.0, 10.0], [0.9] * 3, [NAN, NAN, 10.0]) == [
        "BELOW_50_PCT: below half of expected (2 of 10)",
        "BELOW_EXPECTED: below expected (5 of 10)",
        "BELOW_EXPECTED: below expected (5 of 10)",
    ]


def test_half_of_a_level_below_one_unit_is_not_a_reason():
    assert "OWN_LEVEL" not in reasons([0], [3.0], [0.9], [0.8])[0]


def test_history_is_optional():
    assert reasons([0], [6.2], [0.9]) == reasons([0], [6.2], [0.9], [NAN])


def test_arrays_of_different_length_are_refused():
    with pytest.raises(UsageError, match="one number per pair"):
        reasons([0, 1], [6.2], [0.9])


def test_no_pairs_no_reasons():
    assert reasons([], [], []) == []


quantity = st.floats(0, 1e6)
pair = st.tuples(st.integers(0, 10**6), quantity, st.floats(0, 1), st.one_of(st.just(NAN), quantity))


@given(st.lists(pair, max_size=20))
def test_every_pair_has_known_reasons_that_can_be_read_back(pairs):
    columns = np.array(pairs, dtype=float).reshape(-1, 4).T
    for text in reasons(*columns):
        found = codes_and_words(text)
        assert found
        assert {code for code, _ in found} <= CODES.keys()
        assert "; ".join(f"{code}: {words}" for code, words in found) == text


def test_a_code_without_words_is_worded_by_its_meaning():
    assert codes_and_words("ZERO_SALES;OLD_CODE") == [
        ("ZERO_SALES", "sold nothing"),
        ("OLD_CODE", "OLD_CODE"),
    ]
    assert (
        in_words("ZERO_SALES: zero sales against expected 6.2; X: y") == "zero sales against expected 6.2; y"
    )
    assert in_words("") == ""


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (0.004, "<0.01"),
        (0.35, "0.35"),
        (6.24, "6.2"),
        (17.0, "17"),
        (99.96, "100"),
        (1234.6, "1,235"),
    ],
)
def test_quantities_for_the_eye(value, text):
    assert short(value) == text


@pytest.mark.parametrize(
    ("p", "text"),
    [
        (1.0, "100%"),
        (0.9996, ">99.9%"),
        (0.994, "99.4%"),
        (0.5, "50%"),
        (0.004, "0.4%"),
        (1e-5, "<0.1%"),
        (0.0, "0%"),
    ],
)
def test_what_is_not_certain_is_never_shown_as_certain(p, text):
    assert percent(p) == text


@given(st.lists(st.floats(0, 1e9), max_size=30))
def test_many_quantities_look_as_each_alone(values):
    assert module.short_texts(np.array(values, dtype=float)).to_pylist() == [short(value) for value in values]


@given(st.floats(0, 1e9))
def test_a_quantity_for_the_eye_is_near_the_quantity(value):
    shown = short(value)
    if shown == "<0.01":
        assert 0.0 < value < 0.005
    else:
        step = 1.0 if value >= 99.95 else 0.1 if value >= 0.95 else 0.01
        assert abs(float(shown.replace(",", "")) - value) <= step / 2 + 1e-9
        assert ("." in shown) == (value < 99.95 and value != int(value))


@given(st.floats(0, 1))
def test_a_probability_for_the_eye_is_near_the_probability(p):
    shown = percent(p)
    if shown.startswith((">", "<")):
        assert (0.999 < p < 1.0) if shown[0] == ">" else (0.0 < p < 0.001)
    else:
        assert abs(float(shown.rstrip("%")) / 100 - p) <= 0.005 + 1e-9
        assert shown not in ("100%", "0%") or p in (0.0, 1.0)
