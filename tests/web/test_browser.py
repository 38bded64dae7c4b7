"""The pages in a real browser, as a store sees them on a phone."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from support.browser import chromium, open_page
from support.served import HOSTILE, LAST, make_home, serving

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def browser():
    with chromium() as running:
        yield running


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    world = make_home(tmp_path_factory.mktemp("browser") / "home")
    with serving(world.settings.root) as (found, _):
        yield found


def test_a_person_gets_from_the_first_page_to_why_a_shelf_is_listed(browser, address):
    with open_page(browser, address, width=390, height=844) as watched:
        page = watched.page
        page.get_by_role("link", name="the stores' lists").click()
        page.get_by_label("Store").fill("köln")
        page.get_by_label("Store").press("Enter")
        page.locator("table a").click()
        assert page.get_by_role("heading", level=1).inner_text() == f"Store {HOSTILE}: 1 shelf to check"
        page.locator("table a.pair").click()
        assert "worth a walk" in page.locator(".verdict").inner_text()
        page.get_by_role("link", name="checks of store").click()
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        assert watched.console == []
        assert all(asked.startswith(address) for asked in watched.requests)


def test_the_reports_own_script_runs_and_no_other(browser, address):
    with open_page(browser, f"{address}/weeks/{LAST}/") as watched:
        watched.page.get_by_label("Store", exact=True).select_option("S000")
        assert watched.page.locator("#all tbody tr:visible").count() == 1
        assert watched.console == []
        watched.page.evaluate(
            "document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.hit=1\">')"
        )
        watched.page.wait_for_timeout(200)
        assert watched.page.evaluate("window.hit") is None


@pytest.mark.parametrize(("width", "scheme"), [(320, "dark"), (1280, "light")])
def test_nothing_sticks_out_sideways_and_headings_form_an_outline(browser, address, width, scheme):
    with open_page(browser, address, width=width, height=800, color_scheme=scheme) as watched:
        for path in ("/", f"/weeks/{LAST}/stores/{quote(HOSTILE, safe='')}", "/runs", "/weeks/2026-W01/"):
            watched.page.goto(address + path)
            assert watched.page.evaluate("document.documentElement.scrollWidth") <= width, path
            outline = "[...document.querySelectorAll('h1,h2,h3')].map(h => +h.tagName[1])"
            levels = watched.page.evaluate(outline)
            assert (levels[0], levels.count(1)) == (1, 1), path


def test_a_list_prints_with_room_for_what_was_found(browser, address):
    with open_page(browser, f"{address}/weeks/{LAST}/stores/S000") as watched:
        assert not watched.page.get_by_text("Found at the shelf").is_visible()
        watched.page.emulate_media(media="print")
        assert watched.page.get_by_text("Found at the shelf").is_visible()
        assert not watched.page.locator("nav").is_visible()
