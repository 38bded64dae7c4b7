"""`ew audit as-of`, `export` and `prune`: the past as it stood, handed out, and made smaller."""

from __future__ import annotations

import datetime as dt
import json
import shutil
import subprocess
import sys
import zipfile

import pandas as pd
import pytest
import typer
from support.audit_world import World
from support.factory import held_result
from support.postgres import empty, postgres_server
from typer.testing import CliRunner

from ew_pipeline.audit.export import export
from ew_pipeline.audit.history import as_of, parse_moment, prune
from ew_pipeline.audit.verify import verify
from ew_pipeline.cli import audit
from ew_pipeline.core.errors import DataError, EwError, UsageError
from ew_pipeline.core.week import Week
from ew_pipeline.results import Override
from ew_pipeline.weekly.attempt import show_live

W33, W34 = Week(2026, 33), Week(2026, 34)


@pytest.fixture(scope="module")
def postgres():
    with postgres_server() as uri:
        yield uri


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.server)])
def world(request, tmp_path):
    url = None if request.param == "sqlite" else empty(request.getfixturevalue("postgres"))
    made = World.make(tmp_path / "home", url)
    yield made
    made.ledger.close()


@pytest.fixture(scope="module")
def two_weeks(tmp_path_factory):
    """Made once, copied for every test."""
    made = World.make(tmp_path_factory.mktemp("two-weeks") / "home")
    made.publish("2026-W33")
    made.publish("2026-W34")
    made.ledger.close()
    return made.settings.root


@pytest.fixture
def small(two_weeks, tmp_path):
    shutil.copytree(two_weeks, tmp_path / "home")
    made = World.make(tmp_path / "home")
    yield made
    made.ledger.close()


def command(world, monkeypatch, function, *arguments):
    monkeypatch.setenv("EW_HOME", str(world.settings.root))
    monkeypatch.setenv("EW_ACTOR", "eve")
    app = typer.Typer()
    app.command()(function)
    return CliRunner().invoke(app, list(arguments))


def test_as_of_after_three_supersedes_and_a_rollback(world):
    world.publish("2026-W33", by="ana")
    versions = [world.publish("2026-W34", seed=seed, by=f"u{seed}") for seed in range(4)]
    rolled = world.ledger.rollback(W34, by="bo", why="wrong prices")
    for place, version in enumerate(versions):
        _, week = as_of(world.ledger, version.published_at).weeks
        assert week.publication.run_id == version.run_id
        assert [later.id for later in week.later] == [*(v.id for v in versions[place + 1 :]), rolled.id]
    _, week = as_of(world.ledger, rolled.published_at).weeks
    assert (week.publication.kind, week.publication.run_id) == ("rollback", versions[2].run_id)
    assert week.later == ()
    before = as_of(world.ledger, versions[0].published_at - dt.timedelta(microseconds=1))
    assert [str(one.publication.week) for one in before.weeks] == ["2026-W33"]


def test_as_of_tells_who_overrode_and_which_configuration_was_champion(small):
    data_hash = small.keep_snapshot(Week(2026, 35))
    held = held_result(week="2026-W35", home=small.settings.root, data_hash=data_hash)
    published = small.ledger.publish(
        held, by="cron", report=held.folder / "report.html", override=Override("ana", "a new depot")
    )
    role = small.ledger.promote(held.run_id, by="ana", why="better")
    past = as_of(small.ledger, published.published_at)
    assert past.weeks[-1].publication.override == Override("ana", "a new depot")
    assert past.champion is None
    assert as_of(small.ledger, role.assigned_at).champion == role


def test_the_command_as_of_tells_the_story_of_a_week(small, monkeypatch):
    first = small.ledger.publications(W34)[0]
    small.publish("2026-W34", seed=1, by="bo")
    small.ledger.rollback(W34, by="eve", why="bo was wrong")
    at = first.published_at.isoformat()
    told = json.loads(command(small, monkeypatch, audit.as_of, at, "--week", "2026-W34", "--json").stdout)
    (week,) = told["weeks"]
    assert (week["run_id"], week["still_live"]) == (first.run_id, False)
    assert [(later["kind"], later["published_by"], later["reason"]) for later in week["later"]] == [
        ("publish", "bo", None),
        ("rollback", "eve", "bo was wrong"),
    ]
    text = command(small, monkeypatch, audit.as_of, at).output
    assert "2026-W33" in text
    assert "Nothing was live" in command(small, monkeypatch, audit.as_of, "2001-01-01").output


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-11-16", "2026-11-16T22:59:59.999999+00:00"),  # the end of the day in Berlin
        ("2026-11-16T06:30", "2026-11-16T05:30:00+00:00"),
        ("2026-11-16T06:30+00:00", "2026-11-16T06:30:00+00:00"),
    ],
    ids=["date", "moment", "zoned"],
)
def test_a_moment_is_read_in_the_time_zone_of_the_chain(text, moment):
    assert parse_moment(text, "Europe/Berlin") == dt.datetime.fromisoformat(moment)


def test_a_moment_that_is_none_is_refused():
    with pytest.raises(UsageError, match="not a date"):
        parse_moment("last week", "UTC")


def alone(package, *arguments):
    """The package's own program, in a Python that cannot see ours."""
    return subprocess.run(
        [sys.executable, "-I", "-S", str(package / "verify.py"), *arguments],
        capture_output=True,
        text=True,
        cwd="/",
    )


@pytest.mark.server
def test_a_package_is_verified_without_our_code(world, tmp_path):
    world.publish("2026-W33")
    world.publish("2026-W34")
    world.publish("2026-W34", seed=1)
    world.ledger.rollback(W34, by="bo", why="x")
    world.publish("2026-W35")
    made = export(world.ledger, world.settings, W33, W34, tmp_path / "package", by="ana")
    answer = alone(made.place)
    assert (answer.returncode, answer.stderr) == (0, "")
    assert made.package_hash in answer.stdout
    assert (made.publications, made.flags, made.left_out) == (4, 9, 0)
    head = world.ledger.head()
    assert alone(made.place, "--head", f"{head.seq}:{head.hash}").returncode == 0
    assert alone(made.place, "--head", f"{head.seq}:{'0' * 64}").returncode == 3
    flags = pd.read_csv(made.place / "csv" / "flags.csv")
    assert sorted(set(flags["week"])) == ["2026-W33", "2026-W34"]
    assert "2026-W35" not in (made.place / "ledger" / "segments.jsonl").read_text()


def adapt_manifest(package, path):
    """An intruder who also corrects the hash of the file."""
    import hashlib

    manifest = json.loads((package / "manifest.json").read_text())
    if (package / path).exists():
        manifest["files"][path] = hashlib.sha256((package / path).read_bytes()).hexdigest()
    else:
        del manifest["files"][path]
    (package / "manifest.json").write_text(json.dumps(manifest))


def replace_text(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def drop_line(path, number=0):
    lines = path.read_text().splitlines(keepends=True)
    del lines[number]
    path.write_text("".join(lines))


PACKAGE_CASES = {
    "a flag edited": (
        "ledger/flags/1.jsonl",
        lambda p: replace_text(p, '"units":0', '"units":7'),
        "was edited",
    ),
    "a flag dropped": ("ledger/flags/1.jsonl", drop_line, "flag"),
    "the last flag dropped": (
        "ledger/flags/1.jsonl",
        lambda p: drop_line(p, -1),
        "vouches for 3 other flags",
    ),
    "who published": (
        "ledger/publications.jsonl",
        lambda p: replace_text(p, '"published_by":"ana"', '"published_by":"bo"'),
        "row 1 of publications was edited",
    ),
    "a publication dropped": ("ledger/publications.jsonl", drop_line, "row 1 of publications is not in"),
    "a run dropped": ("ledger/runs.jsonl", drop_line, "of runs is not in the package"),
    "a link edited": ("ledger/chain.jsonl", lambda p: replace_text(p, '"seq":2', '"seq":20'), "link 20"),
    "the chain cut": ("ledger/chain.jsonl", lambda p: drop_line(p, -1), "the chain ends at link"),
}


@pytest.mark.server
@pytest.mark.parametrize(("path", "change", "said"), PACKAGE_CASES.values(), ids=PACKAGE_CASES)
def test_tampering_with_a_package_is_found_even_when_its_manifest_is_adapted(
    small, tmp_path, path, change, said
):
    package = export(small.ledger, small.settings, W33, W34, tmp_path / "p", by="ana").place
    change(package / path)
    adapt_manifest(package, path)
    answer = alone(package)
    assert answer.returncode == 3
    assert said in answer.stdout


@pytest.mark.server
@pytest.mark.parametrize("kind", ["run", "snapshot", "extra", "gone"])
def test_files_of_a_package_are_held_against_the_ledger(small, tmp_path, kind):
    package = export(small.ledger, small.settings, W33, W34, tmp_path / "p", by="ana").place
    publication = small.ledger.publications()[0]
    path = {
        "run": f"runs/{publication.run_id}/report.html",
        "gone": f"runs/{publication.run_id}/scores.parquet",
        "snapshot": f"snapshots/{publication.data_hash}/sales.parquet",
        "extra": "runs/more.txt",
    }[kind]
    if kind == "gone":
        (package / path).unlink()
    else:
        (package / path).write_bytes(b"other")
    if kind != "extra":
        adapt_manifest(package, path)
    answer = alone(package)
    assert answer.returncode == 3
    assert path in answer.stdout


@pytest.mark.server
def test_a_slim_package_as_zip_names_what_it_left_out_and_is_intact(small, tmp_path):
    made = export(small.ledger, small.settings, W34, W34, tmp_path / "w34.zip", by="ana", slim=True)
    with zipfile.ZipFile(made.place) as archive:
        archive.extractall(tmp_path / "out")
    package = tmp_path / "out" / "w34"
    assert alone(package).returncode == 0
    left_out = json.loads((package / "manifest.json").read_text())["left_out"]
    assert [path.rpartition("/")[2] for path in left_out if path.startswith("runs")] == [
        "arrays.npz",
        "scores.parquet",
    ]
    assert not (package / "snapshots").exists()


@pytest.mark.server
def test_a_package_of_pruned_weeks_is_intact(small, tmp_path):
    prune(small.ledger, 1, by="ana")
    made = export(small.ledger, small.settings, W33, W34, tmp_path / "p", by="ana")
    assert alone(made.place).returncode == 0


def test_export_refuses_what_it_cannot_do_well(small, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("mine")
    with pytest.raises(UsageError, match="exists already"):
        export(small.ledger, small.settings, W33, W34, tmp_path / "full", by="ana")
    with pytest.raises(UsageError, match="is after"):
        export(small.ledger, small.settings, W34, W33, tmp_path / "p", by="ana")
    with pytest.raises(UsageError, match="nothing was published"):
        export(small.ledger, small.settings, Week(2020, 1), Week(2020, 2), tmp_path / "p", by="ana")
    (small.run_folder(small.ledger.publications()[0]) / "report.html").unlink()
    with pytest.raises(EwError, match="would not be whole"):
        export(small.ledger, small.settings, W33, W34, tmp_path / "p", by="ana")
    assert not (tmp_path / "p").exists()


@pytest.mark.server
def test_the_command_export_prints_the_hash_to_hand_over(small, monkeypatch, tmp_path):
    answer = command(
        small,
        monkeypatch,
        audit.export,
        "--from",
        "2026-W33",
        "--to",
        "2026-W34",
        "-o",
        str(tmp_path / "p"),
    )
    assert answer.exit_code == 0
    assert alone(tmp_path / "p").stdout.split()[1] in answer.output


def test_pruning_removes_what_is_stored_per_pair_and_verification_passes(world):
    old = world.publish("2026-W32")
    superseded = world.publish("2026-W32", seed=1)
    kept = [world.publish("2026-W33"), world.publish("2026-W34")]
    planned = prune(world.ledger, 2, by="ana", dry_run=True)
    assert (world.run_folder(old) / "scores.parquet").exists()
    removed = prune(world.ledger, 2, by="ana")
    assert removed == planned
    assert {one.run_id for one in removed} == {old.run_id, superseded.run_id}
    assert set(removed[0].files) == {"scores.parquet", "model/all/arrays.npz"}
    assert not (world.run_folder(old) / "scores.parquet").exists()
    assert (world.run_folder(old) / "model" / "all" / "model.json").exists()
    assert all((world.run_folder(one) / "scores.parquet").exists() for one in kept)
    answer = verify(world.ledger, world.settings)
    assert (answer.findings, answer.pruned) == ((), 4)
    assert prune(world.ledger, 2, by="ana") == ()
    row = world.ledger.table("removals").iloc[0]
    assert (row["removed_by"], row["why"]) == ("ana", "older than the newest 2 published weeks")


def test_only_what_was_pruned_may_be_absent(small):
    prune(small.ledger, 1, by="ana")
    publication = small.ledger.publications()[0]
    (small.run_folder(publication) / "report.html").unlink()
    (finding,) = verify(small.ledger, small.settings).findings
    assert finding.name == f"{publication.run_id}/report.html"


def test_an_interrupted_prune_is_intact_and_is_finished_by_the_next(small, monkeypatch):
    from pathlib import Path

    monkeypatch.setattr(Path, "unlink", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        prune(small.ledger, 1, by="ana")
    monkeypatch.undo()
    assert verify(small.ledger, small.settings).intact
    assert len(prune(small.ledger, 1, by="ana")) == 1
    assert len(small.ledger.table("removals")) == 1
    assert verify(small.ledger, small.settings).intact


def test_files_that_were_tampered_with_are_not_pruned_away(small):
    scores = small.run_folder(small.ledger.publications()[0]) / "scores.parquet"
    scores.write_bytes(b"forged")
    with pytest.raises(DataError, match=r"scores\.parquet.*Nothing was removed"):
        prune(small.ledger, 1, by="ana")
    assert len(small.ledger.table("removals")) == 0


def test_the_live_copy_can_still_be_made_after_pruning(small):
    prune(small.ledger, 1, by="ana")
    shutil.rmtree(small.settings.reports / "2026-W33")
    show_live(small.ledger.current(W33), small.settings)
    assert verify(small.ledger, small.settings).intact


def test_the_command_prune_says_what_it_would_remove(small, monkeypatch):
    answer = command(small, monkeypatch, audit.prune, "--keep-weeks", "1", "--dry-run", "--json")
    told = json.loads(answer.stdout)
    assert (told["removed"], told["files"], [run["week"] for run in told["runs"]]) == (False, 2, ["2026-W33"])
    assert len(small.ledger.table("removals")) == 0


def test_how_many_weeks_are_kept_is_a_setting(small, monkeypatch):
    monkeypatch.setenv("EW_KEEP_WEEKS", "1")
    told = json.loads(command(small, monkeypatch, audit.prune, "--dry-run", "--json").stdout)
    assert [run["week"] for run in told["runs"]] == ["2026-W33"]
    monkeypatch.delenv("EW_KEEP_WEEKS")
    assert json.loads(command(small, monkeypatch, audit.prune, "--dry-run", "--json").stdout)["runs"] == []
