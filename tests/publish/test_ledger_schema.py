"""The schema: built by migrations, the same as the tables in code, by one process or several."""

from __future__ import annotations

import sqlite3
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from publish.factory import make_result
from publish.postgres import empty, on_both, on_postgresql
from publish.processes import Forked
from sqlalchemy import Engine, event, inspect, select, text

from ew_pipeline.errors import UsageError
from ew_pipeline.publish.ledger import Ledger, LedgerError, migrate, rows
from ew_pipeline.publish.ledger.connect import SCHEMA, parse_url, writing
from ew_pipeline.publish.ledger.flag_view import flags, whole_flags
from ew_pipeline.publish.ledger.queries import FLAG_FRAME, weeks_flagged
from ew_pipeline.publish.ledger.tables import metadata
from ew_pipeline.publish.ledger.views import frame_of


def ledger_id(url: str, home: Path) -> str:
    with Ledger.open(url, home=home) as ledger:
        return ledger.head().ledger_id


@on_both
def test_the_migrations_make_the_tables_in_code(ledger):
    with ledger._engine.connect() as connection:
        context = MigrationContext.configure(
            connection, opts={"version_table": migrate.VERSION_TABLE, "compare_type": True}
        )
        assert compare_metadata(context, metadata) == []


def test_the_code_knows_its_newest_migration():
    config = Config()
    config.set_main_option("script_location", str(migrate.MIGRATIONS))
    config.set_main_option("path_separator", "os")
    assert ScriptDirectory.from_config(config).get_current_head() == migrate.NEWEST


@on_both
def test_an_older_ledger_is_brought_up_to_date_with_its_history(ledger_url, home, monkeypatch):
    monkeypatch.setattr(rows, "pricing_facts", lambda result: None)  # it had no such column
    with Ledger.open(ledger_url, home=home) as ledger:
        result = make_result(home=home)
        ledger.publish(result, by="ana", report=result.folder / "report.html")
        head = ledger.head()
        older(ledger, "0001")
    with Ledger.open(ledger_url, home=home) as ledger:
        assert ledger.head() == head
        assert ledger.current(result.week).run_id == result.run_id
        assert ledger.verify(expected=head) == []


def test_flags_are_found_by_index_and_written_to_no_other(tmp_path):
    with Ledger.open(f"sqlite:///{tmp_path / 'ledger.db'}") as ledger, ledger._engine.connect() as connection:
        whole = str(whole_flags().compile(connection, compile_kwargs={"literal_binds": True}))
        for source, name in (("flags", "f"), (f"({whole})", "flag_rows")):  # a person's way, and our own
            for condition in (
                "ORDER BY position",
                "AND store_id = 'S1'",
                "AND store_id = 'S1' AND sku_id = 'K1'",
            ):
                asked = f"EXPLAIN QUERY PLAN SELECT * FROM {source} WHERE publication_id = 1 {condition}"
                plan = connection.execute(text(asked)).scalars("detail").all()
                assert any(step.startswith(f"SEARCH {name} USING INDEX") for step in plan)
                assert not any("SCAN" in step for step in plan)
        rows = "SELECT count(*) FROM pragma_index_list('flag_rows')"
        assert connection.execute(text(rows)).scalar_one() == 2


def test_the_weeks_of_a_pair_are_looked_up_by_publication(tmp_path):
    with Ledger.open(f"sqlite:///{tmp_path / 'ledger.db'}") as ledger, ledger._engine.connect() as connection:
        asked = str(weeks_flagged("S1", "K1").compile(connection, compile_kwargs={"literal_binds": True}))
        plan = connection.execute(text(f"EXPLAIN QUERY PLAN {asked}")).scalars("detail").all()
        assert any(step.startswith("SEARCH flag_rows USING") and "INDEX" in step for step in plan)


@on_both
def test_the_view_has_the_columns_in_code(ledger):
    with ledger._engine.connect() as connection:
        found = inspect(connection).get_columns("flags")
    assert [column["name"] for column in found] == [column.name for column in flags.columns]


def older(ledger, version):
    """The ledger as an older version would have left it."""
    from alembic import command

    with writing(ledger._engine) as connection:
        config = Config(attributes={"connection": connection})
        config.set_main_option("script_location", str(migrate.MIGRATIONS))
        config.set_main_option("path_separator", "os")
        command.downgrade(config, version)


@on_both
def test_flags_that_do_not_say_what_their_publication_does_are_left_as_they_are(ledger_url, home):
    with Ledger.open(ledger_url, home=home) as ledger:
        result = make_result(home=home)
        ledger.publish(result, by="ana", report=result.folder / "report.html")
        older(ledger, "0004")
        with writing(ledger._engine) as connection:
            connection.execute(text("UPDATE flags SET alpha = 0.9 WHERE position = 1"))
    with pytest.raises(LedgerError, match="1 flags of the ledger say something else"):
        Ledger.open(ledger_url, home=home)
    with ledger._engine.connect() as connection:
        assert migrate.schema_version(connection) == "0004"
        assert connection.execute(text("SELECT alpha FROM flags WHERE position = 1")).scalar_one() == 0.9


@on_both
def test_flags_read_the_same_before_and_after_what_they_share_is_kept_once(ledger_url, home):
    with Ledger.open(ledger_url, home=home) as ledger:
        result = make_result(home=home)
        published = ledger.publish(result, by="ana", report=result.folder / "report.html")
        now = ledger.flags(published.id)
        older(ledger, "0004")
        with ledger._engine.connect() as connection:
            before = frame_of(FLAG_FRAME, connection.execute(select(*FLAG_FRAME).order_by(flags.c.position)))
    pd.testing.assert_frame_equal(before, now)
    with Ledger.open(ledger_url, home=home) as ledger:
        pd.testing.assert_frame_equal(ledger.flags(published.id), now)
        assert ledger.verify() == []


@pytest.mark.parametrize("gone", ["segments", "runs"])
@on_both
def test_flags_that_lost_a_row_they_share_are_not_left_out_of_an_older_ledger(ledger_url, home, gone):
    with Ledger.open(ledger_url, home=home) as ledger:
        result = make_result(home=home)
        ledger.publish(result, by="ana", report=result.folder / "report.html")
        with writing(ledger._engine) as connection:
            if connection.dialect.name == "postgresql":
                connection.execute(text("SET LOCAL session_replication_role = replica"))
            connection.execute(text(f"DELETE FROM {gone}"))
        with pytest.raises(LedgerError, match="3 flags of the ledger have lost"):
            older(ledger, "0004")
        with ledger._engine.connect() as connection:
            assert migrate.schema_version(connection) == migrate.NEWEST
            assert connection.execute(text("SELECT count(*) FROM flag_rows")).scalar_one() == 3


@on_both
def test_flags_whose_run_is_gone_are_left_as_they_are(ledger_url, home):
    with Ledger.open(ledger_url, home=home) as ledger:
        result = make_result(home=home)
        result = replace(result, provenance=replace(result.provenance, mlflow_run_id=None, flow_run_id=None))
        ledger.publish(result, by="ana", report=result.folder / "report.html")
        older(ledger, "0004")
        with writing(ledger._engine) as connection:
            if connection.dialect.name == "postgresql":
                connection.execute(text("SET LOCAL session_replication_role = replica"))
            connection.execute(text("DELETE FROM runs"))
    with pytest.raises(LedgerError, match="3 flags of the ledger say something else"):
        Ledger.open(ledger_url, home=home)


ONE_MORE_FLAG = (
    "CREATE TEMPORARY TABLE late AS SELECT * FROM flags WHERE position = 0",
    "UPDATE late SET position = 3, store_id = 'late'",
    "INSERT INTO flags SELECT * FROM late",
)


@pytest.mark.parametrize("ledger_url", [on_postgresql], indirect=True)
def test_what_an_older_version_is_just_publishing_is_not_lost_on_the_way(ledger_url, home):
    with Ledger.open(ledger_url, home=home) as ledger:
        result = make_result(home=home)
        ledger.publish(result, by="ana", report=result.folder / "report.html")
        older(ledger, "0004")
        with ThreadPoolExecutor(1) as beside, writing(ledger._engine) as connection:
            for statement in ONE_MORE_FLAG:
                connection.execute(text(statement))
            opened = beside.submit(ledger_id, ledger_url, home)
            waiting = text("SELECT count(*) FROM pg_locks WHERE NOT granted")
            while not connection.execute(waiting).scalar_one():
                assert not opened.done()
                time.sleep(0.01)
        opened.result()
        with ledger._engine.connect() as connection:
            stores = connection.execute(text("SELECT store_id FROM flag_rows ORDER BY position")).scalars()
            assert stores.all()[-1] == "late"


@pytest.mark.server
@on_both
def test_several_processes_make_one_ledger(ledger_url, home):
    processes = [Forked(ledger_id, ledger_url, home) for _ in range(6)]
    assert len({process.result() for process in processes}) == 1
    with Ledger.open(ledger_url, home=home) as ledger:
        assert ledger.verify() == []


def test_a_fresh_sqlite_ledger_is_made_in_few_statements(tmp_path):
    """Work counted, not time: one for each table, index and trigger, and some to look what is there."""
    statements = []

    def count(connection, cursor, statement, *_):
        statements.append(statement)

    event.listen(Engine, "before_cursor_execute", count)
    try:
        Ledger.open(f"sqlite:///{tmp_path / 'fresh.db'}").close()
    finally:
        event.remove(Engine, "before_cursor_execute", count)
    assert 10 < len(statements) < 100


@on_both
def test_a_ledger_of_a_newer_version_is_refused_and_untouched(ledger_url, home):
    with Ledger.open(ledger_url, home=home) as ledger:
        with writing(ledger._engine) as connection:
            connection.execute(text(f"UPDATE {migrate.VERSION_TABLE} SET version_num = '9999'"))
        with pytest.raises(LedgerError, match=r"(?s)schema 9999, written by a newer .*upgrade ew-pipeline"):
            Ledger.open(ledger_url, home=home)
        with ledger._engine.connect() as connection:
            assert migrate.schema_version(connection) == "9999"


@on_both
def test_without_leave_to_migrate_an_absent_ledger_is_an_error(ledger_url, home):
    with pytest.raises(LedgerError, match="does not exist yet"):
        Ledger.open(ledger_url, home=home, migrate=False)
    Ledger.open(ledger_url, home=home).close()
    Ledger.open(ledger_url, home=home, migrate=False).close()


def test_a_database_with_tables_of_the_same_name_is_refused(tmp_path):
    with sqlite3.connect(tmp_path / "mlflow.db") as connection:
        connection.execute("CREATE TABLE runs (run_uuid TEXT)")
    with pytest.raises(LedgerError, match=r"(?s)is not a ledger but has tables of the same names \(runs\)"):
        Ledger.open(f"sqlite:///{tmp_path / 'mlflow.db'}")


@pytest.mark.server
def test_other_tables_in_the_same_postgresql_database_do_no_harm(postgres, home):
    url = empty(postgres)
    with Ledger.open(url, home=home) as ledger, writing(ledger._engine) as connection:
        connection.execute(text("DROP TABLE IF EXISTS public.runs"))
        connection.execute(text("CREATE TABLE public.runs (run_uuid TEXT)"))
        connection.execute(text(f"DROP SCHEMA {SCHEMA} CASCADE"))
    with Ledger.open(url, home=home) as ledger:
        result = make_result(home=home)
        ledger.publish(result, by="ana", report=result.folder / "report.html")
        assert ledger.verify() == []
        with writing(ledger._engine) as connection:
            assert connection.execute(text("SELECT count(*) FROM public.runs")).scalar_one() == 0
            connection.execute(text("DROP TABLE public.runs"))


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("not a url", "not the URL of a database"),
        ("mysql://host/x", "cannot be kept in mysql"),
        ("sqlite://", "in memory"),
        ("sqlite:///:memory:", "in memory"),
    ],
    ids=["nonsense", "mysql", "no file", "memory"],
)
def test_a_url_that_cannot_be_a_ledger_is_a_usage_error(url, words):
    with pytest.raises(UsageError, match=words):
        Ledger.open(url)


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg"])
def test_postgresql_means_the_driver_that_is_installed(scheme):
    assert parse_url(f"{scheme}://u@h/d").drivername == "postgresql+psycopg"


def test_sqlite_is_opened_for_safety(tmp_path):
    with (
        Ledger.open(f"sqlite:///{tmp_path / 'ledger.db'}") as ledger,
        ledger._engine.connect() as connection,
    ):
        found = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()
            for name in ("journal_mode", "synchronous", "foreign_keys")
        }
    assert found == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1}
