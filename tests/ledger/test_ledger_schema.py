"""The schema: built by migrations, the same as the tables in code, by one process or several."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Engine, event, inspect, text
from support.factory import make_result
from support.ledger_processes import Forked
from support.postgres import empty, on_both

from ew_pipeline.core.errors import UsageError
from ew_pipeline.ledger import Ledger, LedgerError, connect
from ew_pipeline.ledger.connect import SCHEMA, parse_url, writing
from ew_pipeline.ledger.flags import flags, whole_flags
from ew_pipeline.ledger.reading import weeks_flagged
from ew_pipeline.ledger.tables import metadata


def ledger_id(url: str, home: Path) -> str:
    with Ledger.open(url, home=home) as ledger:
        return ledger.head().ledger_id


@on_both
def test_the_migrations_make_the_tables_in_code(ledger):
    with ledger._engine.connect() as connection:
        context = MigrationContext.configure(
            connection, opts={"version_table": connect.VERSION_TABLE, "compare_type": True}
        )
        assert compare_metadata(context, metadata) == []


def test_the_code_knows_its_newest_migration():
    config = Config()
    config.set_main_option("script_location", str(connect.MIGRATIONS))
    config.set_main_option("path_separator", "os")
    assert ScriptDirectory.from_config(config).get_current_head() == connect.NEWEST


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
            connection.execute(text(f"UPDATE {connect.VERSION_TABLE} SET version_num = '9999'"))
        with pytest.raises(LedgerError, match=r"(?s)schema 9999, written by a newer .*upgrade ew-pipeline"):
            Ledger.open(ledger_url, home=home)
        with ledger._engine.connect() as connection:
            assert connect.schema_version(connection) == "9999"


@on_both
@pytest.mark.parametrize("migrate_it", [True, False])
def test_a_ledger_of_a_version_no_longer_read_is_refused_and_untouched(ledger_url, home, migrate_it):
    with Ledger.open(ledger_url, home=home) as ledger:
        with writing(ledger._engine) as connection:
            connection.execute(text(f"UPDATE {connect.VERSION_TABLE} SET version_num = '0004'"))
        with pytest.raises(
            LedgerError, match=r"(?s)schema 0004, .*no longer reads.*open it once with commit"
        ):
            Ledger.open(ledger_url, home=home, migrate=migrate_it)
        with ledger._engine.connect() as connection:
            assert connect.schema_version(connection) == "0004"


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
