"""MLflow set up: by many at once, from any older state, and clear about what is wrong."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest
from alembic import command
from alembic.script import ScriptDirectory
from mlflow import MlflowClient
from mlflow.store.db.utils import _get_alembic_config
from mlflow.store.tracking.dbmodels import initial_models
from sqlalchemy import create_engine, event
from sqlalchemy.pool import NullPool
from support.clean_processes import clean

from ew_pipeline.core.settings import Settings
from ew_pipeline.tracking import database as _database
from ew_pipeline.tracking.store import (
    DRIFT,
    EVALUATION,
    WEEKLY,
    TrackingError,
    prepare_tracking,
    quiet_environment,
    run_url,
    shown,
    tracking_client,
)


def prepare_into(home: Path, noise: Path) -> None:
    """In a process of its own: what it prints goes to a file."""
    with noise.open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
        os.environ.pop("MLFLOW_TRACKING_URI", None)  # of the moment in which the fork server began
        prepare_tracking(Settings(home=home))


@pytest.mark.server
def test_four_processes_may_touch_a_fresh_home_at_once(tmp_path, monkeypatch):
    """Forked from a process that has mlflow loaded and nothing else running: all reach the database in the
    same moment, and none inherits the threads and locks of the tests before."""
    home, here = tmp_path / "home", tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    four = [clean.Process(target=prepare_into, args=(home, tmp_path / f"noise{k}")) for k in range(4)]
    for process in four:
        process.start()
    for process in four:
        process.join(120)
    assert [(tmp_path / f"noise{k}").read_text() for k in range(4)] == [""] * 4
    assert [process.exitcode for process in four] == [0] * 4
    assert sorted(path.name for path in home.iterdir()) == ["mlflow.db", "mlflow.lock"]
    assert list(here.iterdir()) == []
    with sqlite3.connect(home / "mlflow.db") as database:
        names = [row[0] for row in database.execute("SELECT name FROM experiments ORDER BY name")]
    assert names == ["Default", DRIFT, EVALUATION, WEEKLY]


def test_artifacts_go_to_the_home_not_to_the_current_folder(settings):
    client = tracking_client(settings)
    location = client.get_experiment_by_name(WEEKLY).artifact_location
    assert location == (settings.root / "mlartifacts" / WEEKLY).as_uri()


def test_settings_made_later_are_not_redirected(settings, tmp_path):
    prepare_tracking(settings)
    assert Settings(home=tmp_path / "other").tracking_uri == f"sqlite:///{tmp_path}/other/mlflow.db"


def test_a_killed_first_touch_leaves_nothing_in_the_way(settings):
    (settings.root / "mlflow.db").unlink()
    (settings.root / ".mlflow.db.part").write_bytes(b"half a schema")
    prepare_tracking(settings)
    assert not (settings.root / ".mlflow.db.part").exists()


def older_database(path: Path, releases: int) -> None:
    """A database with the schema of some migrations ago, and a row in it."""
    config = _get_alembic_config(f"sqlite:///{path}")
    revisions = [script.revision for script in ScriptDirectory.from_config(config).walk_revisions()]
    engine = create_engine(f"sqlite:///{path}", poolclass=NullPool)
    event.listen(engine, "connect", _database._without_waits)
    initial_models.Base.metadata.create_all(engine)
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, revisions[releases])
    with sqlite3.connect(path) as database:
        database.execute(
            "INSERT INTO experiments (name, artifact_location, lifecycle_stage)"
            " VALUES ('mine', '/a', 'active')"
        )


@pytest.mark.parametrize("releases", [1, 8])
def test_a_database_of_an_older_mlflow_is_upgraded_and_a_copy_kept(releases, tmp_path):
    older_database(tmp_path / "mlflow.db", releases)
    before = (tmp_path / "mlflow.db").read_bytes()
    client = tracking_client(Settings(home=tmp_path))
    assert client.get_experiment_by_name("mine").artifact_location == "/a"
    assert (tmp_path / "mlflow.db.before-upgrade").read_bytes() == before


def test_a_database_of_a_newer_mlflow_is_left_alone(settings):
    with sqlite3.connect(settings.root / "mlflow.db") as database:
        database.execute("UPDATE alembic_version SET version_num = 'fedcba987654'")
    with pytest.raises(TrackingError, match=r"a newer MLflow made it \(schema fedcba987654\)"):
        prepare_tracking(settings)


def test_a_database_of_something_else_is_left_alone(settings):
    (settings.root / "mlflow.db").unlink()
    with sqlite3.connect(settings.root / "mlflow.db") as database:
        database.execute("CREATE TABLE recipes (name)")
    with pytest.raises(TrackingError, match="cannot be used: no such table: alembic_version"):
        prepare_tracking(settings)


def test_a_deleted_experiment_is_brought_back(settings):
    client = tracking_client(settings)
    client.delete_experiment(client.get_experiment_by_name(WEEKLY).experiment_id)
    prepare_tracking(settings)
    assert client.get_experiment_by_name(WEEKLY).lifecycle_stage == "active"


def test_a_file_that_is_no_database_is_named(settings):
    (settings.root / "mlflow.db").write_bytes(b"not a database at all" * 100)
    with pytest.raises(TrackingError, match=r"mlflow\.db cannot be used: file is not a database") as caught:
        prepare_tracking(settings)
    assert "moved away" in caught.value.next_step


def test_a_home_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(TrackingError, match="cannot be set up: Not a directory"):
        prepare_tracking(Settings(home=tmp_path / "file" / "home"))


def test_a_server_that_is_not_there_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://someone:secret@127.0.0.1:9")
    with pytest.raises(
        TrackingError, match=r"MLflow at http://127\.0\.0\.1:9 does not answer: Connection refused"
    ) as caught:
        prepare_tracking(Settings(home=tmp_path))
    assert "secret" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_what_the_user_has_set_stays():
    environment = {"MLFLOW_HTTP_REQUEST_TIMEOUT": "7"}
    quiet_environment(environment)
    assert environment["MLFLOW_HTTP_REQUEST_TIMEOUT"] == "7"
    assert environment["MLFLOW_DISABLE_TELEMETRY"] == "true"


def test_only_a_server_has_pages():
    assert run_url("http://host:5000/", "3", "abc") == "http://host:5000/#/experiments/3/runs/abc"
    assert run_url("sqlite:///x.db", "3", "abc") is None
    assert shown("postgresql://me:word@host/db") == "postgresql://host/db"


def test_a_database_given_by_the_user_keeps_artifacts_in_the_home(tmp_path, template):
    (tmp_path / "mlflow.db").write_bytes((template / "mlflow.db").read_bytes())
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    with sqlite3.connect(tmp_path / "mlflow.db") as database:
        database.execute("DELETE FROM experiments WHERE name = ?", (WEEKLY,))
    prepare_tracking(Settings(home=tmp_path / "home", MLFLOW_TRACKING_URI=uri))
    location = MlflowClient(uri).get_experiment_by_name(WEEKLY).artifact_location
    assert location == (tmp_path / "home" / "mlartifacts" / WEEKLY).as_uri()
