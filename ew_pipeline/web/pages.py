"""The pages, one function each: read the ledger, choose the form, answer.

They are plain functions, which the server runs in threads: a slow ledger makes one reader wait, not all.
"""

from __future__ import annotations

from dataclasses import asdict

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse

from ew_pipeline.audit.explain import explain_pair
from ew_pipeline.audit.explain_page import page as explain_page
from ew_pipeline.core.errors import EwError, UsageError
from ew_pipeline.core.settings import Settings
from ew_pipeline.drift.run import describe
from ew_pipeline.ledger import Run
from ew_pipeline.outputs.check_list import file_names, render_flags, store_sheet
from ew_pipeline.outputs.page import PAGE as REPORT
from ew_pipeline.web import addresses
from ew_pipeline.web.addresses import Part
from ew_pipeline.web.queries import (
    SHOWN_STORES,
    DriftState,
    NoLedgerYet,
    answer_file,
    backtests,
    evaluations,
    find_file,
    flagged_stores,
    folder_in_home,
    in_one_line,
    live_publication,
    opened,
    page_file,
    parse_week,
    store_list,
    week_lines,
)
from ew_pipeline.web.render import NotThere, as_csv, as_json, chosen, html

SHOWN_RUNS = 200
router = APIRouter()
READ = ["GET", "HEAD"]


def _settings(request: Request) -> Settings:
    settings: Settings = request.app.state.settings
    return settings


def _drift(request: Request) -> DriftState:
    state: DriftState = request.app.state.drift
    return state


@router.api_route("/", methods=READ)
def front(request: Request, format: str = "html") -> Response:
    """Every week, newest first."""
    settings = _settings(request)
    try:
        with opened(settings) as ledger:
            lines = week_lines(ledger, settings)
            drift = _drift(request).report(ledger)
    except NoLedgerYet:
        lines, drift = [], None
    words = in_one_line(drift)
    alert = drift is not None and bool(drift.open_alerts)
    return chosen(
        format,
        {
            "html": lambda: html(
                "weeks.html.jinja", here="Weeks", lines=lines, drift=words, alert=alert, home=settings.root
            ),
            "json": lambda: as_json({"weeks": [line.plain() for line in lines], "drift": words}),
        },
    )


@router.api_route("/health", methods=READ)
def health(request: Request) -> Response:
    """For whatever watches the server: does the ledger answer."""
    try:
        with opened(_settings(request)) as ledger:
            head = ledger.head()
    except NoLedgerYet as none:
        return as_json({"ready": True, "ledger": none.message})
    except EwError as error:
        return as_json({"ready": False, "reason": error.message, "next": error.next_step}, 503)
    return as_json({"ready": True, "ledger": head.ledger_id, "rows": head.seq})


@router.api_route("/weeks", methods=READ)
def weeks() -> Response:
    return RedirectResponse("/")


@router.api_route("/weeks/{week}", methods=READ)
def week_without_slash(week: Part) -> Response:
    """The report links to its files relative to itself, so its address ends with a slash."""
    return RedirectResponse(addresses.of_week(parse_week(week)))


@router.api_route("/weeks/{week}/stores", methods=READ)
def stores(request: Request, week: Part, find: str = "", format: str = "html") -> Response:
    """The stores of a week that have something to check."""
    with opened(_settings(request)) as ledger:
        publication = live_publication(ledger, parse_week(week))
        shown, matching = flagged_stores(ledger, publication, find)
    rows = shown.to_dict("records")
    return chosen(
        format,
        {
            "html": lambda: html(
                "stores.html.jinja",
                publication=publication,
                rows=rows,
                matching=matching,
                most=SHOWN_STORES,
                find=find,
            ),
            "json": lambda: as_json({"week": str(publication.week), "stores": rows, "matching": matching}),
            "csv": lambda: as_csv(render_flags(shown, "csv"), f"stores-{publication.week}.csv"),
        },
    )


@router.api_route("/weeks/{week}/stores/{store}", methods=READ)
def store(request: Request, week: Part, store: Part, format: str = "html") -> Response:
    """What a store has to check, best first."""
    with opened(_settings(request)) as ledger:
        found = store_list(ledger, live_publication(ledger, parse_week(week)), store)
    number = found.publication.week
    file = f"{number}-{file_names([store])[store]}"
    return chosen(
        format,
        {
            "html": lambda: html("store.html.jinja", found=found, rows=found.rows),
            "json": lambda: as_json({"week": str(number), "store": store, "checks": found.rows}),
            "csv": lambda: as_csv(store_sheet(found.table), file),
        },
    )


@router.api_route("/weeks/{week}/stores/{store}/skus/{sku}", methods=READ)
def pair(
    request: Request, week: Part, store: Part, sku: Part, run: str = "", format: str = "html"
) -> Response:
    """Why a pair was flagged, or was not."""
    settings, wanted = _settings(request), parse_week(week)
    with opened(settings) as ledger:
        try:
            found = explain_pair(ledger, settings, store, sku, wanted, run or None)
        except UsageError as error:
            raise NotThere(error.message, error.next_step, [("all weeks", "/")]) from error
    links = {
        "all weeks": "/",
        f"week {wanted}": addresses.of_week(wanted),
        f"checks of store {store}": addresses.of_store(wanted, store),
    }
    return chosen(
        format,
        {
            "html": lambda: HTMLResponse(explain_page(found, links)),
            "json": lambda: as_json(asdict(found)),
        },
    )


@router.api_route("/weeks/{week}/{path:path}", methods=READ)
def week_file(request: Request, week: Part, path: Part) -> Response:
    """The live report as it was published, and what lies beside it."""
    settings, wanted = _settings(request), parse_week(week)
    with opened(settings) as ledger:
        publication = live_publication(ledger, wanted)
    if week != str(wanted):
        return RedirectResponse(addresses.of_week(wanted))
    folder = folder_in_home(settings, settings.runs / publication.run_id)
    if path in ("check_list", "check_list/"):
        return RedirectResponse(addresses.of_stores(wanted))
    return answer_file(folder, path or REPORT)


@router.api_route("/runs", methods=READ)
def runs(request: Request, week: str = "", format: str = "html") -> Response:
    """Every run, newest first, also those that were held back."""
    with opened(_settings(request)) as ledger:
        found = ledger.runs(parse_week(week) if week else None, limit=SHOWN_RUNS)
    return chosen(
        format,
        {
            "html": lambda: html("runs.html.jinja", here="Runs", runs=found, week=week, most=SHOWN_RUNS),
            "json": lambda: as_json([_short(run) for run in found]),
        },
    )


@router.api_route("/runs/{run_id}", methods=READ)
def run_without_slash(run_id: Part) -> Response:
    return RedirectResponse(addresses.of_run(run_id))


@router.api_route("/runs/{run_id}/{path:path}", methods=READ)
def run_file(request: Request, run_id: Part, path: Part, format: str = "html") -> Response:
    """The page of a run; of one that ended before it had one, what is recorded of it."""
    settings = _settings(request)
    with opened(settings) as ledger:
        try:
            run = ledger.run(run_id)
        except UsageError as error:
            known = [
                (f"run {one.run_id} ({one.status})", addresses.of_run(one.run_id))
                for one in ledger.runs(limit=5)
            ]
            raise NotThere(
                f"there is no run {run_id!r} in the ledger.", None, [*known, ("all runs", "/runs")]
            ) from error
    if path == "" and format != "html":
        return chosen(format, {"html": Response, "json": lambda: as_json(run)})
    if path == "" and (
        not run.folder.is_dir() or find_file(folder_in_home(settings, run.folder), REPORT) is None
    ):
        return html("run.html.jinja", run=run)
    return answer_file(folder_in_home(settings, run.folder), path or REPORT)


def _short(run: Run) -> dict[str, object]:
    named = (
        "run_id",
        "week",
        "status",
        "started_at",
        "recorded_by",
        "pairs_flagged",
        "expected_saving",
        "error",
    )
    return {name: getattr(run, name) for name in named}


@router.api_route("/drift", methods=READ)
def drift(request: Request, format: str = "html") -> Response:
    """Is theta moving."""
    state = _drift(request)
    with opened(_settings(request)) as ledger:
        report = state.report(ledger)
        page = state.page(ledger) if format == "html" else None
    if report is None:
        raise NotThere(
            "no week is published yet, so there is nothing to follow.", "ew run --week W --sales FILE"
        )
    return chosen(format, {"html": lambda: HTMLResponse(page), "json": lambda: as_json(describe(report))})


@router.api_route("/evaluations", methods=READ)
def evaluated(request: Request, format: str = "html") -> Response:
    """What the flags of past weeks were worth."""
    settings = _settings(request)
    with opened(settings) as ledger:
        found = evaluations(ledger, settings)
    pages = backtests(settings)
    return chosen(
        format,
        {
            "html": lambda: html("evaluations.html.jinja", here="Evaluations", found=found, backtests=pages),
            "json": lambda: as_json({"evaluations": found, "backtests": pages}),
        },
    )


@router.api_route("/evaluations/{path:path}", methods=READ)
def evaluation_file(request: Request, path: Part) -> Response:
    """The page of an evaluation or a backtest."""
    found = find_file(_settings(request).evaluations, path)
    if found is None:
        raise NotThere(f"there is no evaluation {path!r}.", None, [("all evaluations", "/evaluations")])
    return page_file(found)
