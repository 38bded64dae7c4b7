"""A week in MLflow, on a real database: what is there, that it is there once, and who is champion."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from itertools import pairwise

import mlflow
import numpy as np
import pandas as pd
import pytest
from mlflow.exceptions import MlflowException
from support.factory import held_result
from support.sending import send

from ew_pipeline.core.errors import EwError
from ew_pipeline.core.settings import Settings
from ew_pipeline.tracking.delivery import deliver, deliver_all, read_delivery, undelivered, write_delivery
from ew_pipeline.tracking.store import DRIFT, WEEKLY, experiment_id, tracking_client


def runs_of(client, experiment, where=""):
    return client.search_runs([experiment_id(client, experiment)], where)


def champion_week(client, name="ew-detector", alias="champion"):
    return client.get_model_version_by_alias(name, alias).tags["ew.week"]


def test_a_week_is_a_run_with_all_that_was_decided(computed, settings):
    result = computed()
    report = result.folder / "report.html"
    tracked = send(result, settings, artifacts={"report.html": report, "docs": result.folder / "data_docs"})
    client = tracking_client(settings)
    run = client.get_run(tracked.mlflow_run_id)
    assert run.info.status == "FINISHED"
    assert run.data.params["detector.mode"] == "auto"
    assert run.data.metrics["week_index"] == result.week.index
    assert run.data.metrics["flags"] == len(result.flags) == 3
    assert run.data.metrics["expected_cost"] == pytest.approx(result.expected_cost)
    assert run.data.metrics["expected_cost_ignoring"] == pytest.approx(result.expected_cost_ignoring)
    assert run.data.metrics["theta.alpha_high"] == result.pooled.alpha_interval[1]
    assert run.data.metrics["seconds.fit"] == 3.1
    tags = run.data.tags
    assert tags["ew.week"] == "2026-W34"
    assert tags["ew.data_hash"] == result.provenance.data_hash
    assert tags["ew.config_hash"] == result.config.hash
    assert tags["ew.flow_run_id"] == result.provenance.flow_run_id
    assert tags["ew.status"] == "computed"
    (data,) = run.inputs.dataset_inputs
    assert result.provenance.data_hash.startswith(data.dataset.digest)
    assert {item.path for item in client.list_artifacts(tracked.mlflow_run_id)} == {"report.html", "docs"}
    assert tracked.url is None


def test_a_segment_is_a_nested_run_with_its_rank_curve(computed, settings):
    result = computed()
    tracked = send(result, settings)
    client = tracking_client(settings)
    (nested,) = runs_of(client, WEEKLY, f"tags.`mlflow.parentRunId` = '{tracked.mlflow_run_id}'")
    assert nested.data.params["noise"] == "poisson"
    assert nested.data.params["anomaly"] == "exponential"
    assert nested.data.metrics["dispersion"] == 0.0
    assert "dispersion_size" not in nested.data.metrics  # infinite
    curve = client.get_metric_history(nested.info.run_id, "rank_curve.leave_one_out")
    assert [(point.step, point.value) for point in curve] == list(result.segments[0].rank_curve)
    values = client.get_metric_history(nested.info.run_id, "singular_value")
    assert [point.value for point in values] == [12.5, 3.25, 0.5]
    picture = client.download_artifacts(nested.info.run_id, "rank_curve.png", str(settings.root))
    with open(picture, "rb") as file:
        assert file.read(8) == b"\x89PNG\r\n\x1a\n"


def test_tracking_a_run_twice_makes_one_run_and_one_model(computed, settings):
    result = computed()
    first, second = send(result, settings), send(result, settings)
    client = tracking_client(settings)
    assert first.mlflow_run_id == second.mlflow_run_id
    assert len(runs_of(client, WEEKLY)) == 2  # the week and its segment
    assert len(client.search_model_versions("name = 'ew-detector'")) == 1


def test_a_week_that_was_sent_half_is_completed(computed, settings):
    result = computed()
    model = result.segments[0].model
    away = model.rename(model.with_name("away"))
    with pytest.raises(EwError, match="there is no model in"):
        send(result, settings)
    assert undelivered(settings) == [result.folder]
    assert read_delivery(result.folder).reason
    away.rename(model)
    (delivery,) = deliver_all(settings)
    client = tracking_client(settings)
    assert delivery.settled
    assert undelivered(settings) == []
    assert len(runs_of(client, WEEKLY)) == 2
    history = client.get_metric_history(delivery.mlflow_run_id, "flags")
    assert len(history) == 1  # what was sent before is not sent again


def test_a_published_model_is_champion_and_joins_the_drift_run(computed, settings):
    result = computed()
    client = tracking_client(settings)
    tracked = send(result, settings)
    with pytest.raises(MlflowException):
        client.get_model_version_by_alias("ew-detector", "champion")
    write_delivery(result.folder, replace(tracked, wanted="published", publication_id="17"))
    deliver(result.folder, settings)
    assert champion_week(client) == "2026-W34"
    tags = client.get_run(tracked.mlflow_run_id).data.tags
    assert (tags["ew.status"], tags["ew.publication_id"]) == ("published", "17")
    (drift,) = runs_of(client, DRIFT)
    (point,) = client.get_metric_history(drift.info.run_id, "theta.alpha")
    assert (point.step, point.value) == (result.week.index, result.pooled.alpha)


def test_the_drift_run_has_one_point_a_week_and_nothing_twice(computed, settings):
    client = tracking_client(settings)
    for week in ("2026-W33", "2026-W34"):
        result = computed(week=week)
        delivery = send(result, settings, published=week)
        write_delivery(result.folder, replace(delivery, sent=None))  # the answer got lost: sent again
        deliver(result.folder, settings)
    (drift,) = runs_of(client, DRIFT)
    history = client.get_metric_history(drift.info.run_id, "theta.anomaly_rate")
    assert [second.step - first.step for first, second in pairwise(history)] == [1]
    assert drift.data.tags["ew.last_week"] == "2026-W34"


def test_a_rerun_supersedes_and_a_backfill_does_not_dethrone(computed, settings):
    client = tracking_client(settings)
    first = send(computed(), settings, published="1")
    second = send(computed(seed=1), settings, published="2")
    earlier = send(computed(week="2026-W20"), settings, published="3")
    runs = [client.get_run(sent.mlflow_run_id) for sent in (first, second, earlier)]
    assert [run.data.tags["ew.status"] for run in runs] == ["superseded", "published", "published"]
    champion = client.get_model_version_by_alias("ew-detector", "champion")
    assert champion.tags["ew.run_id"] == second.facts.run_id


def test_a_shadow_run_is_challenger_and_leaves_the_champion(computed, settings):
    client = tracking_client(settings)
    send(computed(week="2026-W33"), settings, published="1")
    send(computed(shadow=True), settings)
    assert champion_week(client, alias="challenger") == "2026-W34"
    assert champion_week(client) == "2026-W33"


def test_a_held_week_says_why_and_is_nobodys_champion(settings, computed):
    held = replace(computed(), gate=held_result().gate)
    tracked = send(held, settings)
    client = tracking_client(settings)
    tags = client.get_run(tracked.mlflow_run_id).data.tags
    assert tags["ew.status"] == "held"
    assert tags["ew.gate.converged"] == "held: segment all did not converge in 200 steps"
    assert dict(client.get_registered_model("ew-detector").aliases) == {}


def test_segments_have_their_own_models_and_drift(computed, settings):
    result = computed(segments=("food", "men's wear"), stores=4)
    tracked = send(result, settings, published="1")
    client = tracking_client(settings)
    nested = runs_of(client, WEEKLY, f"tags.`mlflow.parentRunId` = '{tracked.mlflow_run_id}'")
    by_name = {run.data.tags["ew.segment"]: run.data.metrics for run in nested}
    assert set(by_name) == {"food", "men's wear"}
    assert sum(metrics["flags"] for metrics in by_name.values()) == len(result.flags)
    names = {model.name for model in client.search_registered_models()}
    assert "ew-detector-food" in names
    assert len(names) == 2
    assert all(champion_week(client, name) == "2026-W34" for name in names)
    (drift,) = runs_of(client, DRIFT)
    assert drift.data.metrics["food/theta.alpha"] == result.segments[0].theta.alpha
    assert drift.data.metrics["theta.alpha"] == result.pooled.alpha


FRESH = """
import sys
import numpy as np, pandas as pd
from pathlib import Path
from ew_pipeline.core.errors import EwError
from ew_pipeline.core.settings import Settings
from ew_pipeline.tracking.store import prepare_tracking
prepare_tracking(Settings(home=Path(sys.argv[1])))
import mlflow
model = mlflow.pyfunc.load_model("models:/ew-detector@champion")
answer = model.predict(pd.read_parquet(sys.argv[2]))
answer.to_parquet(sys.argv[3])
"""


@pytest.mark.server
def test_the_champion_predicts_the_same_in_a_fresh_process(computed, settings, fit, tmp_path):
    send(computed(), settings, published="1")
    week = pd.DataFrame(fit.sales.to_long())
    here = mlflow.pyfunc.load_model("models:/ew-detector@champion").predict(week)
    np.testing.assert_array_equal(here["anomaly_probability"], fit.anomaly_probability_)
    np.testing.assert_array_equal(here["expected_units"], fit.expected_sales_)
    week.to_parquet(tmp_path / "week.parquet")
    arguments = [settings.root, tmp_path / "week.parquet", tmp_path / "answer.parquet"]
    done = subprocess.run(
        [sys.executable, "-c", FRESH, *map(str, arguments)], capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == ("", "")
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "answer.parquet"), here)


def test_the_registered_model_is_data_with_a_signature(computed, settings):
    send(computed(), settings)
    model = mlflow.pyfunc.load_model("models:/ew-detector/1")
    assert [column.name for column in model.metadata.signature.inputs] == [
        "store_id",
        "sku_id",
        "units",
        "level",
    ]
    files = {
        path.name for path in (settings.root / "mlartifacts" / WEEKLY / "models").rglob("*") if path.is_file()
    }
    assert {"model.json", "arrays.npz", "MLmodel"} <= files
    assert not {name for name in files if name.endswith((".pkl", ".pickle", ".py"))}


def test_nothing_is_printed_and_nothing_is_left_outside_the_home(computed, settings, tmp_path, capfd):
    send(computed(), settings, published="1")
    assert capfd.readouterr() == ("", "")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["elsewhere", "the home"]
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_home_that_was_moved_takes_its_artifacts_along(computed, settings, fit, tmp_path):
    send(computed(), settings, published="1")
    moved = Settings(home=settings.root.rename(tmp_path / "new home"))
    client = tracking_client(moved)
    model = mlflow.pyfunc.load_model("models:/ew-detector@champion")
    assert len(model.predict(pd.DataFrame(fit.sales.to_long()))) == fit.sales.n_observed
    (run,) = runs_of(client, WEEKLY, "tags.`ew.part` = 'week'")
    client.log_text(run.info.run_id, "still here", "note.txt")
    assert [path.name for path in (moved.root / "mlartifacts").rglob("note.txt")] == ["note.txt"]
    assert not settings.root.exists()
