"""The pages from a real server: what is on them, what they refuse, and that they change nothing."""

from __future__ import annotations

import hashlib
import shutil
import sqlite3
import threading
import time
import zipfile
from urllib.parse import quote

import pytest
from support.served import (
    FIRST,
    HELD,
    HOSTILE,
    HOSTILE_SKU,
    LAST,
    NEXT,
    ask,
    hostile_scores,
    make_home,
    publish_with_page,
    serving,
)

from ew_pipeline.outputs.check_list import file_names

pytestmark = pytest.mark.server
SECRET = "not for the pages"


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    made = make_home(folder / "home")
    (folder / "outside.txt").write_text(SECRET)
    (made.settings.root / "secret.txt").write_text(SECRET)
    return made


@pytest.fixture(scope="module")
def address(world):
    with serving(world.settings.root) as (found, _):
        yield found


@pytest.fixture(scope="module")
def live(world):
    return {str(one.week): one for one in world.ledger.live()}


def folder_of(world, publication):
    return world.settings.runs / publication.run_id


def store_path(week, store):
    return f"/weeks/{week}/stores/{quote(store, safe='')}"


def test_the_first_page_has_every_week_newest_first_with_what_was_held(world, address, live):
    page = ask(address, "/")
    assert page.status == 200
    table = page.text[page.text.index("<table") :]
    assert table.index(HELD) < table.index(LAST) < table.index(FIRST)
    assert f"<b>{HELD}</b> is not published" in page.text
    weeks = {line["week"]: line for line in ask(address, "/?format=json").json()["weeks"]}
    assert list(weeks) == [HELD, LAST, FIRST]
    assert weeks[HELD]["live"] is None
    (held,) = weeks[HELD]["not_live"]
    assert held["status"] == "held"
    assert f'href="/runs/{held["run_id"]}/"' in page.text
    assert weeks[LAST]["live"]["flags"] == live[LAST].flags_count
    assert weeks[LAST]["live"]["stores"] == 4
    assert "still learning" in page.text


def test_the_report_is_served_as_it_was_published_with_its_files(world, address, live):
    report = ask(address, f"/weeks/{LAST}/")
    assert hashlib.sha256(report.body).hexdigest() == live[LAST].report_hash
    assert ask(address, f"/weeks/{LAST}").headers["location"] == f"/weeks/{LAST}/"
    for name, kind in (
        ("check_list.csv", "text/csv"),
        ("check_list.json", "application/json"),
        ("check_list.parquet", "application/vnd.apache.parquet"),
        ("data_docs/index.html", "text/html"),
        ("data_docs/", "text/html"),
    ):
        answer = ask(address, f"/weeks/{LAST}/{name}")
        assert (answer.status, answer.headers["content-type"].partition(";")[0]) == (200, kind), name


def test_a_stores_list_is_found_in_the_folder_and_in_the_archive(world, address, live):
    run = folder_of(world, live[FIRST])
    path = f"/weeks/{FIRST}/check_list/S000.csv"
    unpacked = ask(address, path)
    with zipfile.ZipFile(run / "check_list.zip", "w") as archive:
        for file in sorted((run / "check_list").iterdir()):
            archive.write(file, f"check_list/{file.name}")
    shutil.move(run / "check_list", run / "aside")
    packed = ask(address, path)
    assert (unpacked.status, packed.status) == (200, 200)
    assert packed.body == unpacked.body
    assert ask(address, f"/weeks/{FIRST}/check_list/S999.csv").status == 404
    assert ask(address, f"/weeks/{FIRST}/check_list/../scores.parquet").status == 404


def test_a_store_with_a_hostile_name_has_its_list_and_every_name_is_escaped(world, address, live):
    page = ask(address, store_path(LAST, HOSTILE))
    assert page.status == 200
    assert "<img" not in page.text
    assert "Köln/1 &lt;img" in page.text
    assert "zero_sales" in page.text  # the reason
    own = folder_of(world, live[LAST]) / "check_list" / file_names([HOSTILE])[HOSTILE]
    assert ask(address, store_path(LAST, HOSTILE) + "?format=csv").body == own.read_bytes()
    (check,) = ask(address, store_path(LAST, HOSTILE) + "?format=json").json()["checks"]
    assert (check["sku_id"], check["place"], check["sold"]) == (HOSTILE_SKU, 1, 0)


def test_a_pair_is_explained_flagged_or_not(address):
    flagged = f"{store_path(LAST, HOSTILE)}/skus/{quote(HOSTILE_SKU, safe='')}"
    answer = ask(address, flagged + "?format=json").json()
    assert (answer["store"], answer["sku"], answer["status"]) == (HOSTILE, HOSTILE_SKU, "flagged")
    page = ask(address, flagged)
    assert "Flagged: worth a walk to the shelf." in page.text
    assert "<img" not in page.text
    other = ask(address, f"/weeks/{LAST}/stores/S000/skus/K001?format=json").json()
    assert other["status"] == "not_flagged"


def test_a_held_run_has_its_page_and_an_unknown_one_names_others(world, address):
    (run,) = world.ledger.runs(status="held")
    page = ask(address, f"/runs/{run.run_id}/")
    assert page.body == (run.folder / "report.html").read_bytes()
    assert ask(address, f"/runs/{run.run_id}/?format=json").json()["status"] == "held"
    unknown = ask(address, "/runs/none/")
    assert unknown.status == 404
    assert run.run_id in unknown.text


@pytest.mark.parametrize(
    ("path", "words"),
    [
        (f"/weeks/{NEXT}/", f"{NEXT} is not published; {FIRST} to {LAST} are."),
        (f"/weeks/{HELD}/", "its last run was held"),
        ("/weeks/nonsense/", "is not a week"),
        (f"/weeks/{LAST}/stores/nowhere", "S000"),
        ("/nothing", "There is no such page."),
        ("/weeks/%ff/", "There is no such page."),
        ("/evaluations/none.html", "all evaluations"),
    ],
)
def test_what_is_not_there_is_a_page_that_says_what_is(address, path, words):
    answer = ask(address, path)
    assert answer.status == 404
    assert words in answer.text


def test_a_store_with_nothing_to_check_is_not_unknown(world, address):
    scores = hostile_scores()
    scores.loc[scores["store_id"] == "S001", "flagged"] = False
    publish_with_page(world, "2026-W32", scores)
    answer = ask(address, "/weeks/2026-W32/stores/S001")
    assert answer.status == 200
    assert "nothing to check" in answer.text


def test_drift_and_evaluations_are_there(world, address):
    drift = ask(address, "/drift")
    assert drift.status == 200
    assert "Every series" in drift.text
    assert ask(address, "/drift?format=json").json()["verdict"] == "stable"
    assert "Nothing is evaluated yet" in ask(address, "/evaluations").text
    page = world.settings.evaluations / "backtest-x" / "evaluation.html"
    page.parent.mkdir(parents=True)
    page.write_text("<!doctype html><title>A backtest</title>")
    assert "backtest-x/evaluation.html" in ask(address, "/evaluations").text
    assert ask(address, "/evaluations/backtest-x/evaluation.html").body == page.read_bytes()


def test_a_new_publication_shows_without_a_restart(world, address):
    assert ask(address, f"/weeks/{NEXT}/").status == 404
    followed = ask(address, "/drift?format=json").json()["weeks"]
    world.publish(NEXT)
    assert ask(address, f"/weeks/{NEXT}/").status == 200
    assert ask(address, "/?format=json").json()["weeks"][0]["week"] == NEXT
    assert ask(address, "/drift?format=json").json()["weeks"] == followed + 1


OUT = (
    "../../secret.txt",
    "%2e%2e/%2e%2e/secret.txt",
    "..%2f..%2fsecret.txt",
    "%2e%2e%2f%2e%2e%2fsecret.txt",
    "..%5c..%5csecret.txt",
    "%252e%252e%252f%252e%252e%252fsecret.txt",
    "data_docs/../../../secret.txt",
    "data_docs/..%2f..%2f..%2fsecret.txt",
    "/etc/hostname",
    "%2fetc%2fhostname",
    "link.txt",
    "links/outside.txt",
    ".hidden",
    "check_list.csv%00.html",
)


@pytest.mark.parametrize("way", OUT)
@pytest.mark.parametrize("place", ["weeks", "runs", "evaluations"])
def test_no_address_leads_out_of_a_folder(world, address, live, place, way):
    run = folder_of(world, live[LAST])
    folder = {"weeks": run, "runs": run, "evaluations": world.settings.evaluations / "a"}[place]
    folder.mkdir(parents=True, exist_ok=True)
    outside = world.settings.root.parent
    for name, target in (("link.txt", outside / "outside.txt"), ("links", outside)):
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(target)
    (folder / ".hidden").write_text(SECRET)
    start = {"weeks": f"/weeks/{LAST}", "runs": f"/runs/{live[LAST].run_id}", "evaluations": "/evaluations/a"}
    answer = ask(address, f"{start[place]}/{way}")
    assert answer.status == 404, answer.text
    assert SECRET not in answer.text


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
def test_nothing_can_be_sent(address, method):
    for path in ("/", f"/weeks/{LAST}/", "/nothing"):
        answer = ask(address, path, method)
        assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize(
    "path", ["/", f"/weeks/{LAST}/", f"/weeks/{LAST}/stores", "/nothing", f"/weeks/{LAST}/data_docs/"]
)
def test_every_answer_forbids_the_network_and_head_has_no_body(address, path):
    full, head = ask(address, path), ask(address, path, "HEAD")
    policy = full.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; ")
    assert "http" not in policy
    assert "*" not in policy
    assert full.headers["x-content-type-options"] == "nosniff"
    assert (head.status, head.body) == (full.status, b"")
    assert head.headers["content-length"] == str(len(full.body))


def test_a_locked_ledger_is_said_in_words_and_others_are_not_kept_waiting(world, address):
    page = world.settings.evaluations / "free.html"
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text("free")
    locking = sqlite3.connect(world.settings.root / "ledger.db", isolation_level=None)
    try:
        locking.execute("PRAGMA locking_mode = EXCLUSIVE")
        locking.execute("BEGIN EXCLUSIVE")
        answers = {}
        waiting = threading.Thread(target=lambda: answers.update(page=ask(address, "/")))
        waiting.start()
        time.sleep(0.3)
        assert ask(address, "/evaluations/free.html").status == 200
        assert waiting.is_alive()  # the page that needs the ledger has no answer yet
        waiting.join()
        assert answers["page"].status == 503
        assert "is locked by another process" in answers["page"].text
        assert "Traceback" not in answers["page"].text
    finally:
        locking.execute("ROLLBACK")
        locking.close()
    assert ask(address, "/health").json()["ready"] is True


def test_a_ledger_that_is_away_is_said_in_words_and_not_made_anew(world, address):
    ledger = world.settings.root / "ledger.db"
    ledger.rename(ledger.with_name("away.db"))
    try:
        health = ask(address, "/health")
        assert health.status == 503
        assert "is gone" in health.json()["reason"]
        page = ask(address, f"/weeks/{LAST}/")
        assert page.status == 503
        assert "put the last backup in its place" in page.text
        assert not ledger.exists()
    finally:
        ledger.with_name("away.db").rename(ledger)
    assert ask(address, "/health").status == 200


def test_reading_changes_nothing(world, address, live):
    def tree():
        root = world.settings.root
        files = [
            path for path in root.rglob("*") if path.is_file() and not path.name.startswith("ledger.db-")
        ]
        return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}

    shutil.rmtree(world.settings.reports / LAST)  # copies, which others make again when they look
    before, head = tree(), world.ledger.head()
    for path in (
        "/",
        f"/weeks/{LAST}/",
        f"/weeks/{LAST}/stores",
        "/drift",
        "/runs",
        "/evaluations",
        "/health",
    ):
        assert ask(address, path).status == 200, path
    assert tree() == before
    assert world.ledger.head() == head
