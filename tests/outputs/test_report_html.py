"""The page as a file: self-contained, escaped, the same for the same week."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from support.factory import make_result

from ew_pipeline.backtest.metrics import calibration_table
from ew_pipeline.decide.flags import ScoreTotals
from ew_pipeline.outputs.check_list import write_check_lists
from ew_pipeline.outputs.page import render_html, write_report
from ew_pipeline.outputs.report_content import build_content
from ew_pipeline.outputs.report_plots import (
    probability_plot,
    rank_plot,
    sales_plot,
    singular_values_plot,
    theta_points,
)

NASTY = "</td><script>alert('1')</script>\" onload=\"x $a^b$"
NO_SERIES = pd.DataFrame()


def page(result, folder, **options):
    options = {"series": NO_SERIES, "previous": None, "links": {}} | options
    return write_report(result, folder=folder, **options).read_text(encoding="utf-8")


class Tags(HTMLParser):
    """Every tag with its attributes, in order; and that what is opened is closed."""

    void = frozenset({"meta", "link", "br", "input", "use", "path", "rect"})

    def __init__(self, text):
        super().__init__()
        self.tags, self.open = [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in self.void:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        if tag in self.void:
            return
        assert self.open.pop() == tag


def test_the_page_is_well_formed_and_names_no_other_file(tmp_path):
    tags = Tags(page(make_result(), tmp_path))
    assert tags.open == []
    used = [
        attributes.get(name) for _, attributes in tags.tags for name in ("src", "href") if name in attributes
    ]
    assert all(address.startswith(("#", "data:")) for address in used)


def test_ids_on_the_page_are_unique_and_references_find_them(tmp_path):
    text = page(make_result(segments=("food", "home")), tmp_path)
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    wanted = re.findall(r'(?:url\(|href=")#([^)"]+)', text)
    assert {name for name in wanted if not name.startswith("store=")} <= set(ids)
    labels = re.findall(r'aria-labelledby="([^"]+)"', text)
    assert {name for label in labels for name in label.split()} <= set(ids)


def test_ids_of_stores_and_everything_else_are_escaped(tmp_path):
    base = make_result(segments=("food", "home"))
    names = {name: f"{name}{NASTY}" for name in ("food", "home", "S000", "S001", "S002")}
    scores = base.scores.replace({"store_id": names, "segment": names})
    result = replace(
        base,
        scores=scores.assign(sku_id=scores["sku_id"] + NASTY),
        segments=tuple(
            replace(segment, name=names[segment.name], warnings=(NASTY,)) for segment in base.segments
        ),
        coverage=replace(base.coverage, stores_missing=(NASTY,)),
        contract=replace(
            base.contract, faults=(replace(base.contract.faults[0], reason=NASTY, examples=(NASTY,)),)
        ),
    )
    previous = result.flags.head(1).assign(week=NASTY)
    tags = Tags(page(result, tmp_path, previous=previous, links={NASTY: NASTY}))
    assert tags.open == []
    assert sum(tag == "script" for tag, _ in tags.tags) == 1
    assert all("onload" not in attributes for _, attributes in tags.tags)


@pytest.mark.parametrize(
    ("address", "linked"),
    [
        ("http://host/#/runs/1", True),
        ("data_docs/index.html", True),
        ("javascript:alert(1)", False),
        ("java\nscript:alert(1)", False),
        ("data:text/html,x", False),
    ],
)
def test_only_harmless_addresses_become_links(address, linked):
    tags = Tags(render_html(build_content(make_result(), links={"MLflow run": address}), plots={}))
    assert (address in [attributes.get("href") for _, attributes in tags.tags]) == linked


def test_lists_are_linked_when_they_lie_beside(tmp_path):
    assert 'href="check_list.csv"' not in render_html(build_content(make_result()), plots={})
    write_check_lists(make_result(), tmp_path)
    assert 'href="check_list.csv"' in page(make_result(), tmp_path)


def test_the_same_week_gives_the_same_page(tmp_path):
    assert page(make_result(), tmp_path) == page(make_result(), tmp_path / "again")


def test_a_page_without_flags_or_pairs_can_be_written(tmp_path):
    result = make_result()
    nothing = page(replace(result, scores=result.scores.assign(flagged=False)), tmp_path)
    assert "Nothing to check" in nothing
    assert "No shelf is worth a walk" in nothing
    assert "Nothing to check" in page(replace(result, scores=result.scores.head(0)), tmp_path)


def test_calibration_stands_where_labels_exist(tmp_path):
    table = calibration_table([0.1, 0.2, 0.8, 0.9], [0, 0, 1, 1], bins=2)
    assert "Not known yet" in render_html(build_content(make_result()), plots={})
    with_labels = page(make_result(), tmp_path, calibration=table)
    assert "Not known yet" not in with_labels
    assert "4 pairs with labels; largest gap between predicted and found 15%" in with_labels


def test_theta_of_past_weeks_is_joined_with_the_week_itself():
    result = make_result("2026-W34", segments=("food", "home"))
    now = theta_points(result, NO_SERIES)
    past = now.assign(week="2026-W33").drop(columns="index")
    later, same = past.assign(week="2026-W35"), past.assign(week="2026-W34", alpha=9.0)
    points = theta_points(result, pd.concat([past, same, later]))
    assert points[["week", "segment"]].apply(tuple, axis=1).tolist() == [
        (week, segment) for segment in ("food", "home", "pooled") for week in ("2026-W33", "2026-W34")
    ]
    assert points["alpha"].max() < 1  # the week itself comes from the result, not from an earlier publication
    assert points["index"].diff().iloc[1] == 1


def test_plots_follow_the_page_and_speak(tmp_path):
    result = make_result()
    plots = [sales_plot(result.totals, result.flags), probability_plot(result.totals)]
    for plot in plots:
        assert "var(--accent)" in plot.svg
        assert "#0102" not in plot.svg  # no stand-in colour is left
        assert 'role="img"' in plot.svg
        assert plot.description in plot.svg
        assert "<text" in plot.svg
        assert "http" not in plot.svg


def test_a_name_with_dollars_is_no_formula():
    segments = make_result(segments=("$a^b$", "home")).segments
    assert ">$a^b$<" in rank_plot(segments).svg


def test_plots_with_nothing_to_show_are_left_out():
    flags = make_result().scores.head(0)
    empty = ScoreTotals.of(flags)
    bare = replace(make_result().segments[0], rank_curve=(), held_out_curve=(), singular_values=())
    assert [
        sales_plot(empty, flags),
        probability_plot(empty),
        rank_plot([bare]),
        singular_values_plot([bare]),
    ] == [None] * 4


def test_a_large_week_is_binned_not_drawn_pair_by_pair():
    n = 50_000
    generator = np.random.default_rng(0)
    expected = generator.lognormal(1.5, 1.0, n)
    scores = pd.DataFrame(
        {
            "store_id": "S1",
            "sku_id": np.arange(n).astype(str),
            "units": generator.poisson(expected),
            "expected_units": expected,
            "anomaly_probability": generator.beta(0.2, 5, n),
            "cost_missed": 3.0,
            "expected_saving": generator.normal(size=n),
            "flagged": np.arange(n) % 20 == 0,
        }
    )
    plot = sales_plot(ScoreTotals.of(scores), scores[scores["flagged"]].head(500))
    assert len(plot.svg) < 200_000
    assert "50,000 scored pairs" in plot.description
    assert "2,500 to check, of which the 500 that save most are marked" in plot.description
