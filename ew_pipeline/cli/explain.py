"""`ew explain`: one page about one pair in one week, flagged or not."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from ew_pipeline.audit.explain import explain_pair
from ew_pipeline.audit.explain_page import lines, page
from ew_pipeline.core.console import emit_json, messages, results
from ew_pipeline.core.settings import Settings
from ew_pipeline.core.week import Week
from ew_pipeline.ledger import Ledger


def explain(
    store: Annotated[str, typer.Option(help="The store.")],
    sku: Annotated[str, typer.Option(help="The SKU.")],
    week: Annotated[str, typer.Option(help="ISO week, or its first day.")],
    run: Annotated[str | None, typer.Option(help="A run of the week; default: what is live.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write the page into this file.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Why a pair was flagged, or why not: its history, what was expected, costs, rule, decision.

    Also says which it is when a pair was not scored, not ranged, or its store did not report.
    """
    settings = Settings()
    with Ledger.open(settings.ledger_url, home=settings.root) as ledger:
        explanation = explain_pair(ledger, settings, store, sku, Week.parse(week), run)
    if html is not None:
        html.write_text(page(explanation), encoding="utf-8")
        messages().print(f"Page: {html}", markup=False, soft_wrap=True)
    if json:
        emit_json(asdict(explanation))
    elif html is None:
        for line in lines(explanation):
            results().print(line, markup=False, soft_wrap=True)
