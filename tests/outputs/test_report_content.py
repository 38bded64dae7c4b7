"""What the report says, whoever renders it."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest
from support.factory import held_result, make_result

from ew_pipeline.core.settings import RunConfig
from ew_pipeline.core.week import Week
from ew_pipeline.infer.pricing import Pricing
from ew_pipeline.outputs import report_content as content_of_report
from ew_pipeline.outputs.page import render_html
from ew_pipeline.outputs.report_content import LISTED, build_content
from ew_pipeline.outputs.summary import headline, render_lines, summary_lines, summary_markdown
from ew_pipeline.outputs.words import (
    clean,
    days,
    money,
    plural,
    seconds,
    share,
)
from ew_pipeline.results import Override


def without_marks(result):
    """A week with nothing to remark."""
    coverage = replace(result.coverage, stores_missing=(), pairs_promoted=0, pairs_not_scored=0)
    return replace(result, coverage=coverage, contract=replace(result.contract, rows_quarantined=0))


def mark_names(result):
    return [mark.name for mark in build_content(result).marks]


def test_counts_and_savings_are_those_of_the_result():
    result = make_result(stores=3, skus=4)
    content = build_content(result)
    assert (content.to_check, content.scored, len(content.stores)) == (3, 12, 3)
    assert content.saving == result.expected_saving
    assert [check.sku for check in content.top] == result.flags["sku_id"].tolist()
    assert content.top[0].sold_share == 0.0


def test_stores_are_ordered_by_number_of_checks():
    scores = make_result(stores=3, skus=4).scores
    extra = (scores["store_id"] == "S001") & (scores["sku_id"] == "K003")
    result = make_result(scores=scores.assign(flagged=scores["flagged"] | extra))
    stores = build_content(result).stores
    assert (stores[0].store, stores[0].to_check) == ("S001", 2)
    assert [store.share for store in stores] == [1.0, 0.5, 0.5]


def test_changes_tell_new_still_and_gone():
    result = make_result(stores=3, skus=4)  # flags S000 K000, S001 K001, S002 K002
    previous = pd.DataFrame(
        {"store_id": ["S000", "S002", "S009"], "sku_id": ["K000", "K001", "K001"], "week": "2026-W33"}
    )
    content = build_content(result, previous=previous)
    changes = content.changes
    assert (changes.since, changes.new, changes.still, changes.gone) == ("2026-W33", 2, 1, 2)
    assert changes.gone_pairs == (("S002", "K001"), ("S009", "K001"))
    assert {check.store: check.state for check in content.checks} == {
        "S000": "still",
        "S001": "new",
        "S002": "new",
    }


def test_the_first_week_has_nothing_to_compare_with():
    content = build_content(make_result())
    assert content.changes is None
    assert {check.state for check in content.checks} == {""}


def test_a_last_week_without_flags_makes_all_new():
    previous = pd.DataFrame({"store_id": [], "sku_id": [], "week": []}, dtype=str)
    changes = build_content(make_result(), previous=previous).changes
    assert (changes.new, changes.still, changes.gone, changes.since) == (3, 0, 0, "last week")


def test_a_passed_gate_is_healthy_with_theta_in_words():
    health = build_content(make_result()).health
    assert (health.state, health.command) == ("healthy", None)
    assert "All 2 checks passed" in health.line
    assert "of the records are wrong" in health.line


def test_a_held_week_says_why_and_what_to_type():
    health = build_content(held_result()).health
    assert health.state == "held"
    assert health.reasons == ("segment all did not converge in 200 steps",)
    assert health.command.startswith("ew run --week 2026-W34")
    assert "--override" in health.command
    assert build_content(held_result(), publish_anyway="ew x").health.command == "ew x"


def test_an_override_names_who_and_why():
    health = build_content(held_result(), override=Override("mara", "checked by hand")).health
    assert (health.state, health.command) == ("overridden", None)
    assert "mara" in health.line
    assert "checked by hand" in health.line


def test_a_shadow_run_offers_no_way_to_publish():
    health = build_content(held_result(shadow=True)).health
    assert (health.state, health.command) == ("shadow", None)


def test_a_clean_week_has_no_marks():
    assert mark_names(without_marks(make_result())) == []


@pytest.mark.parametrize(
    ("change", "mark"),
    [
        ({"zero_rule": "inferred"}, "zeros inferred"),
        ({"history_weeks": 0}, "cross-section only"),
        ({"stores_missing": ("S7", "S8")}, "2 stores missing"),
        ({"pairs_promoted": 1200}, "1,200 promoted"),
        ({"pairs_not_scored": 4}, "4 not scored"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_coverage_that_limits_the_result_is_marked(change, mark):
    result = without_marks(make_result())
    assert mark_names(replace(result, coverage=replace(result.coverage, **change))) == [mark]


def test_quarantine_shadow_and_fit_are_marked():
    result = without_marks(make_result(shadow=True))
    segment = replace(result.segments[0], warnings=("few pairs per store",))
    contract = replace(result.contract, rows_quarantined=2)
    result = replace(result, segments=(segment,), contract=contract)
    assert mark_names(result) == ["shadow", "2 rows quarantined", "fit"]


def test_an_unidentified_theta_is_marked_once():
    result = without_marks(make_result())
    theta = replace(result.pooled, identified=False, reason="not identified: alpha is anything")
    segment = replace(result.segments[0], warnings=("theta is not identified: alpha is anything",))
    marks = build_content(replace(result, pooled=theta, segments=(segment,))).marks
    assert [(mark.name, mark.words) for mark in marks] == [("theta not identified", "alpha is anything")]


def test_promotions_are_said_to_be_kept_when_they_are():
    result = make_result(config=RunConfig(promotions="include"))
    words = {mark.name: mark.words for mark in build_content(result).marks}
    assert words["1 promoted"] == "pairs on promotion were compared like any other"


def test_segments_stand_beside_the_pooled_theta():
    names = [row[0] for row in build_content(make_result(segments=("food", "home"))).segments.rows]
    assert names == ["food", "home", "pooled"]
    assert [row[0] for row in build_content(make_result()).segments.rows] == ["all"]


def test_a_long_list_is_cut_and_counted():
    result = make_result(stores=LISTED + 7, skus=1)
    content = build_content(result)
    assert (content.to_check, len(content.checks), content.not_listed) == (LISTED + 7, LISTED, 7)


def test_console_lines_carry_the_tally():
    lines = summary_lines(held_result())
    assert lines[0] == "2026-W34: 3 shelves to check in 3 stores"
    assert lines[1].startswith("expected saving 8.10 of ")
    assert any("did not converge" in line for line in lines)
    assert any("to publish anyway: ew run" in line for line in lines)
    assert "2 rows quarantined: faulty rows were set aside, not repaired" in lines


def test_nothing_to_check_is_said():
    result = make_result()
    lines = summary_lines(replace(result, scores=result.scores.assign(flagged=False)))
    assert lines[0] == "2026-W34: nothing to check"
    assert lines[1].startswith("expected saving 0.00 ")


def test_an_id_cannot_steer_the_terminal_or_break_a_table():
    scores = make_result(stores=1).scores.assign(store_id="\x1b[31m|<b>`x`\u202e\n")
    result = make_result(scores=scores)
    assert all("\x1b" not in line and "\n" not in line for line in summary_lines(result))
    table = [line for line in summary_markdown(result).splitlines() if "K000" in line]
    assert len(table) == 1
    assert "�\\[31m\\|\\<b\\>\\`x\\`��" in table[0]


def test_markdown_has_headline_health_and_top_flags():
    text = summary_markdown(make_result())
    assert text.startswith("# 2026-W34: 3 shelves to check in 3 stores\n")
    assert "**Healthy.**" in text
    assert text.count("\n| S0") == 6  # three flags and three stores


@pytest.mark.parametrize(
    ("week", "text"),
    [
        ("2026-W34", "17–23 August 2026"),
        ("2026-W31", "27 July – 2 August 2026"),
        ("2026-W53", "28 December 2026 – 3 January 2027"),
    ],
)
def test_days_of_a_week(week, text):
    assert days(Week.parse(week)) == text


def test_numbers_for_the_eye():
    assert [money(value) for value in (0, 8.104, 99.996, 999.996, 12345.6)] == [
        "0.00",
        "8.10",
        "100.00",
        "1,000",
        "12,346",
    ]
    assert [share(value) for value in (0.0042, 0.042, 0.18, 1.0, float("nan"))] == [
        "0.42%",
        "4.2%",
        "18%",
        "100%",
        "unknown",
    ]
    assert [seconds(value) for value in (0.04, 59.9, 61.2)] == ["0.0 s", "59.9 s", "1 min 01 s"]
    assert [plural(n, "shelf", "shelves") for n in (0, 1, 2000)] == ["0 shelves", "1 shelf", "2,000 shelves"]
    assert clean("a\tb\x00c") == "a�b�c"


@pytest.mark.parametrize(
    ("form", "labels", "name"),
    [
        ("posterior", "", "P(wrong)"),
        ("drop", "", "P(drop)"),
        ("history", "pair", "P(drop)"),
        ("many + history", "pair", "P(drop)"),
        ("many + history", "checks", "P(wrong)"),
        ("history", "checks", "P(drop)"),  # learnt nothing from the checks
    ],
)
def test_the_page_says_of_what_the_probability_is(form, labels, name):
    result = make_result(pricing=Pricing(form=form, labels=labels, words="so"))
    assert build_content(result).chance.name == name
    assert f"| {name} |" in summary_markdown(result)


def test_all_stores_are_counted_and_the_first_are_listed(monkeypatch):
    monkeypatch.setattr(content_of_report, "LISTED_STORES", 7)
    content = build_content(make_result(stores=9, skus=9))
    assert (len(content.stores), content.stores_to_check) == (7, 9)
    assert headline(content) == "9 shelves to check in 9 stores"
    page = render_html(content, plots={})
    assert "9 stores</a>" in page
    assert "and 2 more stores<" in page
    assert render_lines(content)[2].endswith("… +4")  # five are named


def test_of_a_week_whose_best_flags_alone_are_here_all_are_counted_and_no_changes_told():
    whole = make_result(stores=3, skus=4)
    few = whole.scores[whole.scores["store_id"] == "S000"].reset_index(drop=True)
    content = build_content(
        replace(whole, scores=few, given_totals=whole.totals), previous=whole.flags.assign(week="2026-W33")
    )
    assert headline(content) == "3 shelves to check in 3 stores"
    assert len(content.checks) == 1
    assert content.changes is None
