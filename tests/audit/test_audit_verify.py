"""`ew audit verify`: whatever is edited, inserted or deleted is found and named."""

from __future__ import annotations

import json
import shutil
import sqlite3

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.audit_world import World
from typer.testing import CliRunner

from ew_pipeline.audit.verify import verify
from ew_pipeline.cli import audit
from ew_pipeline.core.errors import UsageError
from ew_pipeline.core.provenance import file_hash
from ew_pipeline.ledger import Head


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """Made once, copied for every test."""
    made = World.make(tmp_path_factory.mktemp("published") / "home")
    made.publish("2026-W33")
    made.publish("2026-W34")
    made.publish("2026-W34", seed=1)
    made.ledger.close()
    return made.settings.root


@pytest.fixture
def world(published, tmp_path):
    shutil.copytree(published, tmp_path / "home")
    made = World.make(tmp_path / "home")
    yield made
    made.ledger.close()


def found(world, **arguments):
    return {
        (one.kind, one.where, one.name) for one in verify(world.ledger, world.settings, **arguments).findings
    }


def sql(world, *statements):
    with sqlite3.connect(world.settings.root / "ledger.db") as connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()


def last(world):
    return world.ledger.publications()[-1]


def test_an_untouched_home_is_intact(world):
    answer = verify(world.ledger, world.settings)
    assert answer.findings == ()
    assert (answer.publications, answer.snapshots, answer.pruned) == (3, 3, 0)
    assert answer.files > 20


# Each case: what an intruder does, and what must be named.
LEDGER_CASES = {
    "edit a flag": (
        "UPDATE flag_rows SET anomaly_probability = 0.5 WHERE publication_id = 1 AND position = 1",
        ("edited", "ledger", "flags 1/1"),
    ),
    "delete a flag": (
        "DELETE FROM flag_rows WHERE publication_id = 2 AND position = 0",
        ("deleted", "ledger", "flags 2/0"),
    ),
    "insert a flag": (
        "INSERT INTO flag_rows SELECT publication_id, 99, 'S9', sku_id, segment, units, expected_units,"
        " anomaly_probability, cost_false_alarm, cost_missed, threshold, expected_saving, store_rank,"
        " reasons, level, row_hash FROM flag_rows WHERE publication_id = 1 AND position = 0",
        ("inserted", "ledger", "flags 1/99"),
    ),
    "edit who published": (
        "UPDATE publications SET published_by = 'bo' WHERE id = 1",
        ("edited", "ledger", "publications 1"),
    ),
    "edit a recorded file hash": (
        "UPDATE publications SET files = '{}' WHERE id = 1",
        ("edited", "ledger", "publications 1"),
    ),
    "delete a publication": (
        "DELETE FROM publications WHERE id = 3",
        ("deleted", "ledger", "publications 3"),
    ),
    "cut the chain short": (
        "DELETE FROM chain WHERE seq = (SELECT max(seq) FROM chain)",
        ("truncated", "ledger", "chain_head 1"),
    ),
    "edit a link": (
        "UPDATE chain SET record_hash = 'x' WHERE seq = 2",
        ("broken", "ledger", "chain 2"),
    ),
    "insert a promotion": (
        "INSERT INTO config_roles VALUES (1, 'champion', 'r', 'h', '{}', '2026-01-01', 'bo', 'why')",
        ("inserted", "ledger", "config_roles 1"),
    ),
    "damage a row beyond reading": (
        "UPDATE publications SET files = '{' WHERE id = 2",
        ("edited", "ledger", "publications 2"),
    ),
}


@pytest.mark.parametrize(("statement", "named"), LEDGER_CASES.values(), ids=LEDGER_CASES)
def test_tampering_with_the_ledger_is_named(world, statement, named):
    sql(world, "PRAGMA foreign_keys = OFF", statement)
    assert named in found(world)


def edit(path):
    path.chmod(0o644)
    path.write_bytes(path.read_bytes() + b" ")


FILE_CASES = {
    "report": ("report.html", edit, "edited"),
    "scores": ("scores.parquet", edit, "edited"),
    "model": ("model/all/arrays.npz", edit, "edited"),
    "check list of a store": ("check_list/S000.csv", edit, "edited"),
    "data docs removed": ("data_docs/index.html", lambda path: path.unlink(), "deleted"),
    "list put there": ("check_list/S777.csv", lambda path: path.write_text("x"), "inserted"),
}


@pytest.mark.parametrize(("path", "change", "kind"), FILE_CASES.values(), ids=FILE_CASES)
def test_tampering_with_a_file_of_a_run_is_named(world, path, change, kind):
    publication = world.ledger.publications()[0]
    change(world.run_folder(publication) / path)
    assert found(world) == {(kind, "run", f"{publication.run_id}/{path}")}


def test_a_run_that_is_gone_is_one_finding(world):
    shutil.rmtree(world.run_folder(last(world)))
    assert found(world) == {("deleted", "run", last(world).run_id)}


def test_what_mlflow_was_told_and_logs_may_change(world):
    folder = world.run_folder(last(world))
    (folder / "tracking.json").write_text('{"sent": "published"}')
    (folder / "steps.log").write_text("began\nended\n")
    assert found(world) == set()


def test_a_live_copy_that_was_edited_is_named(world):
    edit(world.settings.reports / "2026-W34" / "report.html")
    assert found(world) == {("edited", "live copy", "2026-W34/report.html")}


def test_a_live_copy_that_shows_an_older_publication_is_named(world):
    (world.settings.reports / "2026-W34" / "publication.txt").write_text("2 older\n")
    assert found(world) == {("edited", "live copy", "2026-W34/publication.txt")}


def test_live_copies_that_are_gone_or_of_no_publication_are_named(world):
    shutil.rmtree(world.settings.reports / "2026-W33")
    (world.settings.reports / "2026-W35").mkdir()
    assert found(world) == {("deleted", "live copy", "2026-W33"), ("inserted", "live copy", "2026-W35")}


def rewrite_sales(folder, column, position, value):
    """Change one cell, and the file's hash in the manifest with it."""
    path = folder / "sales.parquet"
    file = pq.ParquetFile(path)
    groups = [file.read_row_group(number) for number in range(file.num_row_groups)]
    cells = groups[-1][column].to_pylist()
    cells[position] = value
    place = groups[-1].column_names.index(column)
    groups[-1] = groups[-1].set_column(
        place, groups[-1].schema.field(column), pa.array(cells, groups[-1].schema.field(column).type)
    )
    path.chmod(0o644)
    with pq.ParquetWriter(path, groups[0].schema) as writer:
        for group in groups:
            writer.write_table(group)
    rehash(folder, "sales")


def rehash(folder, table):
    manifest = folder / "manifest.json"
    written = json.loads(manifest.read_text())
    written["tables"][table]["sha256"] = file_hash(folder / f"{table}.parquet")
    manifest.chmod(0o644)
    manifest.write_text(json.dumps(written))


@pytest.mark.parametrize(
    ("column", "value"), [("units", 5), ("promo", 1), ("sku_id", "K777")], ids=["units", "promo", "sku"]
)
def test_one_cell_of_a_snapshot_is_found_even_when_the_manifest_was_adapted(world, column, value):
    folder = world.snapshot(last(world))
    rewrite_sales(folder, column, 0, value)
    assert found(world) == {("edited", "snapshot", f"{folder.name[:12]}/sales.parquet")}


def test_a_snapshot_written_anew_with_the_same_rows_is_another_file(world):
    folder = world.snapshot(last(world))
    before = json.loads((folder / "manifest.json").read_text())["tables"]["sales"]["sha256"]
    rewrite_sales(folder, "units", 0, 1)  # what it was: the world's seed
    manifest = folder / "manifest.json"
    written = json.loads(manifest.read_text())
    assert written["tables"]["sales"]["sha256"] != before
    written["tables"]["sales"]["sha256"] = before
    manifest.write_text(json.dumps(written))
    (finding,) = verify(world.ledger, world.settings).findings
    assert "the rows that were kept, but is another file" in finding.words


MANIFEST_CASES = {
    "week": ("week", "2026-W01"),
    "weeks": ("weeks", ["2026-W34"]),
    "parts": ("parts", {}),
    "segment table": ("segment_table", "sales"),
}


@pytest.mark.parametrize(("name", "value"), MANIFEST_CASES.values(), ids=MANIFEST_CASES)
def test_an_edited_manifest_is_named(world, name, value):
    folder = world.snapshot(last(world))
    manifest = folder / "manifest.json"
    written = json.loads(manifest.read_text()) | {name: value}
    manifest.chmod(0o644)
    manifest.write_text(json.dumps(written))
    assert found(world) == {("edited", "snapshot", f"{folder.name[:12]}/manifest.json")}


def test_snapshots_that_are_gone_or_have_more_files_are_named(world):
    first, second, _ = (world.snapshot(one) for one in world.ledger.publications())
    shutil.rmtree(first)
    second.chmod(0o755)
    (second / "extra.parquet").write_bytes(b"x")
    (world.snapshot(last(world)) / "costs.parquet").unlink()
    assert found(world) == {
        ("deleted", "snapshot", first.name[:12]),
        ("inserted", "snapshot", f"{second.name[:12]}/extra.parquet"),
        ("deleted", "snapshot", f"{last(world).data_hash[:12]}/costs.parquet"),
    }


def test_an_older_copy_of_the_whole_ledger_is_found_by_the_anchors(world):
    home = world.settings.root
    world.ledger.close()
    shutil.copy(home / "ledger.db", home / "old.db")
    world.publish("2026-W35")
    with sqlite3.connect(home / "ledger.db") as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    shutil.copy(home / "old.db", home / "ledger.db")
    kinds = {kind for kind, where, _ in found(world, files=False) if where == "ledger"}
    assert kinds == {"truncated"}


def test_a_head_that_was_written_down_is_held_against_the_chain(world):
    head = verify(world.ledger, world.settings, files=False).head
    assert found(world, files=False, expected=head) == set()
    other = Head(head.ledger_id, head.seq, "0" * 64)
    assert found(world, files=False, expected=other) == {("broken", "ledger", f"chain {head.seq}")}


def test_without_mlflow_and_prefect_the_audit_is_whole(world):
    (world.settings.root / "mlflow.db").write_bytes(b"")
    (world.settings.root / "mlflow.db").unlink()
    shutil.rmtree(world.settings.root / "prefect", ignore_errors=True)
    assert verify(world.ledger, world.settings).intact


def run_command(world, monkeypatch, *arguments):
    import typer

    monkeypatch.setenv("EW_HOME", str(world.settings.root))
    app = typer.Typer()
    app.command("verify")(audit.verify)
    return CliRunner().invoke(app, list(arguments))


def test_the_command_ends_with_0_and_prints_the_head(world, monkeypatch):
    answer = run_command(world, monkeypatch, "--json")
    told = json.loads(answer.stdout)
    assert (answer.exit_code, told["intact"], told["findings"]) == (0, True, [])
    again = run_command(world, monkeypatch, "--ledger-only", "--head", told["head"])
    assert again.exit_code == 0


def test_the_command_ends_with_3_and_the_list(world, monkeypatch):
    edit(world.run_folder(last(world)) / "report.html")
    answer = run_command(world, monkeypatch, "--json")
    assert answer.exit_code == 3
    assert [one["name"] for one in json.loads(answer.stdout)["findings"]] == [
        f"{last(world).run_id}/report.html"
    ]


def test_a_head_that_cannot_be_read_is_refused(world, monkeypatch):
    answer = run_command(world, monkeypatch, "--head", "nonsense")
    assert isinstance(answer.exception, UsageError)
    assert "LEDGER:SEQ:HASH" in str(answer.exception)


def test_the_second_writing_of_the_hash_rule_agrees_with_the_first_on_missing_text(tmp_path):
    """The costs of the world have empty ids: the part hash covers missing values."""
    made = World.make(tmp_path / "home")
    made.publish("2026-W33", seed=np.random.default_rng(3).integers(1, 9).item())
    assert verify(made.ledger, made.settings).intact
