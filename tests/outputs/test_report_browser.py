"""The page in a real browser: what store operations and the runner see."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
from support.browser import chromium, open_page
from support.factory import held_result, make_result, make_scores

from ew_pipeline.outputs.check_list import write_check_lists
from ew_pipeline.outputs.page import write_report

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def browser():
    with chromium() as running:
        yield running


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    """A week with 5 flags in S000 and one in each of 29 more stores, one of them with a hostile name."""
    scores = make_scores(np.random.default_rng(0), stores=30, skus=40)
    more = (scores["store_id"] == "S000") & scores["sku_id"].isin([f"K{n:03d}" for n in range(5)])
    scores["flagged"] |= more
    scores["store_id"] = scores["store_id"].replace({"S029": "<img src=x onerror=alert(1)> & co"})
    result = make_result(scores=scores.sort_values(["store_id", "sku_id"], ignore_index=True))
    folder = tmp_path_factory.mktemp("report")
    write_check_lists(result, folder)
    previous = result.flags.head(10).assign(week="2026-W33")
    return write_report(
        result,
        series=pd.DataFrame(),
        previous=previous,
        links={"Data Docs": "data_docs/index.html"},
        folder=folder,
    ).as_uri()


def test_the_page_opens_quietly_and_asks_for_nothing(browser, address):
    with open_page(browser, address) as watched:
        watched.page.wait_for_load_state("networkidle")
        assert watched.console == []
        assert watched.requests == [address]


def bottom(element):
    box = element.bounding_box()
    return box["y"] + box["height"]


def test_the_first_screen_says_how_many_where_and_how_well(browser, address):
    with open_page(browser, address) as watched:
        heading = watched.page.get_by_role("heading", level=1)
        assert heading.inner_text() == "34 shelves to check in 30 stores"
        for words in ("Expected saving", "24 new", "10 still there, 0 gone", "Healthy"):
            assert bottom(watched.page.get_by_text(words).first) <= 800, words
        assert bottom(watched.page.locator(".stores").get_by_text("S000")) <= 800
        assert watched.page.locator("#top tbody tr").count() == 20


def shown(page):
    return page.locator("#all tbody tr:visible").count()


def test_the_list_can_be_filtered_by_store_and_word(browser, address):
    with open_page(browser, address) as watched:
        page = watched.page
        assert shown(page) == 34
        page.get_by_label("Store", exact=True).select_option("S000")
        assert shown(page) == 5
        assert page.locator("#shown").inner_text() == "5 of 34 shown"
        page.get_by_label("Search").fill("k003")
        assert shown(page) == 1
        page.get_by_label("Store", exact=True).select_option("")
        assert shown(page) == 2  # S000 and S003 have K003 on their lists


def test_a_store_in_the_address_or_clicked_opens_its_list(browser, address):
    with open_page(browser, address + "#store=S007") as watched:
        assert shown(watched.page) == 1
        watched.page.locator(".stores").get_by_role("link", name="S000").click()
        assert shown(watched.page) == 5


def test_a_hostile_name_is_shown_and_can_be_chosen(browser, address):
    name = "<img src=x onerror=alert(1)> & co"
    with open_page(browser, address) as watched:
        watched.page.get_by_label("Store", exact=True).select_option(name)
        assert shown(watched.page) == 1
        assert watched.page.locator("#all tbody tr:visible .pair").inner_text() == name
        assert watched.console == []


def test_columns_sort_as_numbers_both_ways(browser, address):
    with open_page(browser, address) as watched:
        page = watched.page

        def expected():
            cells = page.locator("#all td.expected").all()
            return [float(cell.get_attribute("data-v")) for cell in cells]

        button = page.locator("#all thead").get_by_role("button", name="Expected")
        button.click()
        assert expected() == sorted(expected())
        button.click()
        assert expected() == sorted(expected(), reverse=True)
        assert page.locator("#all th[aria-sort=descending]").count() == 1


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_plot_is_visible_and_in_the_colours_of_the_page(browser, address, scheme):
    with open_page(browser, address, color_scheme=scheme) as watched:
        plots = watched.page.get_by_role("img")
        assert plots.count() == 5
        for plot in plots.all():
            box = plot.bounding_box()
            assert box["width"] > 300
            assert box["height"] > 150
        ink = watched.page.locator("svg.plot text").first.evaluate("e => getComputedStyle(e).fill")
        body = watched.page.evaluate("getComputedStyle(document.body).backgroundColor")
        bright = sum(map(int, ink.removeprefix("rgb(").rstrip(")").split(",")))
        behind = sum(map(int, body.removeprefix("rgb(").rstrip(")").split(",")))
        assert (bright > behind) == (scheme == "dark")


@pytest.mark.parametrize("width", [320, 390, 768, 1280])
def test_nothing_sticks_out_sideways(browser, address, width):
    with open_page(browser, address, width=width, height=844) as watched:
        assert watched.page.evaluate("document.documentElement.scrollWidth") <= width


def test_long_ids_do_not_push_the_page_wide(browser, tmp_path):
    scores = make_result().scores
    scores = scores.assign(store_id=scores["store_id"] + "x" * 120, sku_id=scores["sku_id"] + "y" * 120)
    path = write_report(
        make_result(scores=scores), series=pd.DataFrame(), previous=None, links={}, folder=tmp_path
    )
    with open_page(browser, path.as_uri(), width=390, height=844) as watched:
        assert watched.page.evaluate("document.documentElement.scrollWidth") <= 390


def test_a_held_week_shows_why_and_what_to_type_on_the_first_screen(browser, tmp_path):
    path = write_report(held_result(), series=pd.DataFrame(), previous=None, links={}, folder=tmp_path)
    with open_page(browser, path.as_uri()) as watched:
        health = watched.page.get_by_label("Model health")
        assert "did not converge" in health.inner_text()
        assert "ew run --week 2026-W34" in health.inner_text()
        assert health.bounding_box()["y"] < 400


def test_headings_form_an_outline_and_tables_have_headers(browser, address):
    with open_page(browser, address) as watched:
        levels = watched.page.evaluate("[...document.querySelectorAll('h1,h2,h3')].map(h => +h.tagName[1])")
        assert levels[0] == 1
        assert levels.count(1) == 1
        assert all(after - before <= 1 for before, after in pairwise(levels))
        bare = watched.page.evaluate(
            "[...document.querySelectorAll('table')].filter(t => !t.querySelector('th[scope]')).length"
        )
        assert bare == 0


def test_a_filtered_list_prints_whole(browser, address):
    with open_page(browser, address) as watched:
        watched.page.get_by_label("Store", exact=True).select_option("S000")
        watched.page.emulate_media(media="print")
        assert shown(watched.page) == 5
        assert not watched.page.locator(".filters").is_visible()
