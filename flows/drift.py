"""The drift flow: after each week, and what answers an alert."""

from __future__ import annotations

from prefect import flow
from prefect.artifacts import create_link_artifact, create_markdown_artifact
from prefect.client.schemas import State
from prefect.events import emit_event
from prefect.states import Completed

from ew_pipeline.core.settings import DriftSettings, Settings
from ew_pipeline.core.week import Week
from ew_pipeline.drift.alerts import Alert, evidence, list_alerts
from ew_pipeline.drift.page import alert_markdown, drift_markdown
from ew_pipeline.drift.run import DriftReport, run_drift
from ew_pipeline.ledger import Ledger
from flows.steps import PrefectSteps

EVENT = "ew.drift.alert"


@flow(name="drift", persist_result=False, validate_parameters=False)
def drift(week: str | None = None, weeks_between_alarms: float | None = None) -> State[DriftReport]:
    """Judge the published weeks. The state is Stable, or Alert while one is open."""
    settings, own = Settings(), DriftSettings()
    if weeks_between_alarms is not None:
        own = own.model_copy(update={"weeks_between_alarms": weeks_between_alarms})
    report = run_drift(settings, own, PrefectSteps(), None if week is None else Week.parse(week))
    for alert in report.new:
        announce(alert)
    create_markdown_artifact(drift_markdown(report), key="drift")
    create_link_artifact(link=report.page.as_uri(), link_text="charts", key="drift-page")
    name = "Alert" if report.open_alerts else "Stable"
    return Completed(name=name, message=report.verdict, data=report)


@flow(name="drift-response", persist_result=False, validate_parameters=False)
def drift_response(alert_id: int) -> None:
    """What the automation starts for an alert: the stores and SKUs it comes from, as an artifact."""
    settings = Settings()
    with Ledger.open(settings.ledger_url, home=settings.root) as ledger:
        alert = next(one for one in list_alerts(ledger) if one.id == int(alert_id))
        found = evidence(ledger, alert)
    create_markdown_artifact(alert_markdown(alert, found), key=f"drift-alert-{alert.id}")


def announce(alert: Alert) -> None:
    """The event that automations wait for."""
    emit_event(
        event=EVENT,
        resource={
            "prefect.resource.id": f"ew.drift.alert.{alert.id}",
            "prefect.resource.name": alert.words,
            "ew.kind": alert.kind,
            "ew.severity": alert.severity,
            "ew.segment": alert.segment,
        },
        payload={
            "alert_id": alert.id,
            "week": str(alert.week),
            "words": alert.words,
            "look_at": alert.look_at,
        },
    )
