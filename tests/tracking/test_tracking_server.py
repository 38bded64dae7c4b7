"""A week on a real MLflow server: pages, artifacts and models are the server's."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import mlflow
import numpy as np
import pandas as pd
import pytest
from support.sending import send

from ew_pipeline.core.settings import Settings
from ew_pipeline.tracking.store import WEEKLY, tracking_client
from ew_pipeline.tracking.weekly import TrackedRun

pytestmark = pytest.mark.server
STARTUP_SECONDS = 180.0


@pytest.fixture(scope="module")
def server(template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("server")
    shutil.copy(template / "mlflow.db", folder)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port)]
    command += ["--backend-store-uri", f"sqlite:///{folder}/mlflow.db", "--workers", "1"]
    command += ["--artifacts-destination", str(folder / "artifacts")]
    environment = {**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "DO_NOT_TRACK": "true"}
    environment.pop("MLFLOW_TRACKING_URI", None)
    # the experiments of the template belong to a home; a server makes its own
    with (folder / "server.log").open("w") as log:
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=log, stderr=log, start_new_session=True
        )
    url = f"http://127.0.0.1:{port}"
    try:
        wait_for(url, process, folder / "server.log")
        client = mlflow.MlflowClient(url, url)
        for name in (WEEKLY, "ew-drift"):
            client.rename_experiment(client.get_experiment_by_name(name).experiment_id, f"{name}-template")
        yield url
    finally:
        os.killpg(process.pid, signal.SIGTERM)  # its own session: the server and its worker, nobody else
        process.wait(30)


def wait_for(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + STARTUP_SECONDS
    while True:
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=5):
                return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            if process.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"the server did not start:\n{log.read_text()[-2000:]}")
            time.sleep(0.2)


def test_a_week_on_a_server(server, computed, settings, fit, capfd):
    remote = Settings(home=settings.home, MLFLOW_TRACKING_URI=server)
    result = computed()
    report = {"report.html": result.folder / "report.html"}
    sent = send(result, remote, published="1", artifacts=report)
    assert capfd.readouterr() == ("", "")
    client = tracking_client(remote)
    experiment = client.get_experiment_by_name(WEEKLY)
    assert sent.url == f"{server}/#/experiments/{experiment.experiment_id}/runs/{sent.mlflow_run_id}"
    assert TrackedRun(result.folder, sent.mlflow_run_id, sent.url).links == {"MLflow run": sent.url}
    assert experiment.artifact_location.startswith("mlflow-artifacts:/")
    assert [item.path for item in client.list_artifacts(sent.mlflow_run_id)] == ["report.html"]
    model = mlflow.pyfunc.load_model("models:/ew-detector@champion")
    answer = model.predict(pd.DataFrame(fit.sales.to_long()))
    np.testing.assert_array_equal(answer["anomaly_probability"], fit.anomaly_probability_)
    assert not (settings.root / "mlartifacts").exists()
