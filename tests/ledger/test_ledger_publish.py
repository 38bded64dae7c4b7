"""Publishing a week: once, again, with other data, by override, and back."""

from __future__ import annotations

import datetime as dt
import math
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from types import MappingProxyType

import numpy as np
import pandas as pd
import pytest
from sqlalchemy import text
from support.factory import held_result, make_result
from support.postgres import on_both

from ew_pipeline.core import schema
from ew_pipeline.core.errors import DataError, EwError, UsageError
from ew_pipeline.core.provenance import file_hash
from ew_pipeline.core.settings import RunConfig
from ew_pipeline.core.week import Week
from ew_pipeline.ledger import Ledger, LedgerError, RunInfo
from ew_pipeline.ledger.connect import writing
from ew_pipeline.results import GateCheck, Override, WeekResult

W34 = Week(2026, 34)


def publish(ledger: Ledger, result: WeekResult, by: str = "ana", **arguments):
    return ledger.publish(result, by=by, report=result.folder / "report.html", **arguments)


def test_a_published_week_is_live_with_its_flags_and_hashes(ledger, home):
    result = make_result(home=home)
    (result.folder / ".scores-half.part").write_text("of a process that was killed")
    publication = publish(ledger, result)
    assert publication.created
    assert (publication.week, publication.version, publication.kind) == (W34, 1, "publish")
    assert (publication.flags_count, publication.pairs_scored) == (3, 12)
    assert publication.report == result.folder / "report.html"
    assert publication.report_hash == file_hash(publication.report)
    assert publication.scores_hash == file_hash(publication.scores)
    assert set(publication.files) == {
        "data_docs/index.html",
        "model/all/model.json",
        "report.html",
        "scores.parquet",
    }
    assert ledger.current(W34) == publication
    assert ledger.publications(W34) == (publication,)
    assert [(run.run_id, run.status) for run in ledger.runs()] == [(result.run_id, "published")]
    assert ledger.verify() == []


@on_both
def test_the_flags_come_back_exactly_with_all_that_led_to_them(ledger, home):
    result = make_result(home=home, segments=("food", "toys"))
    found = ledger.flags(publish(ledger, result).id)
    assert tuple(found.columns[: len(schema.FLAGS.names)]) == schema.FLAGS.names
    names = [name for name in schema.FLAGS.names if name != "week"]
    pd.testing.assert_frame_equal(found[[*names, "level"]], result.flags[[*names, "level"]], check_exact=True)
    by_name = {segment.name: segment for segment in result.segments}
    for flag in found.itertuples():
        segment = by_name[flag.segment]
        assert (flag.alpha, flag.anomaly_rate_high) == (
            segment.theta.alpha,
            segment.theta.anomaly_rate_interval[1],
        )
        assert (flag.rank, flag.noise, flag.anomaly) == (2, "poisson", "exponential")
        assert (flag.data_hash, flag.config_hash, flag.code_version) == result.provenance.input_key
        assert (flag.run_id, flag.mlflow_run_id) == (result.run_id, result.provenance.mlflow_run_id)


def test_flags_of_one_store(ledger, home):
    publication = publish(ledger, make_result(home=home))
    assert list(ledger.flags(publication.id, store="S001")["sku_id"]) == ["K001"]


@on_both
def test_frames_have_the_same_types_with_and_without_rows(ledger, home):
    full = make_result(home=home)
    none = full.scores.assign(flagged=False, level=math.nan)
    empty = make_result("2026-W35", home=home, scores=none)
    first, second = publish(ledger, full), publish(ledger, empty)
    assert (second.flags_count, ledger.verify()) == (0, [])
    pd.testing.assert_series_equal(ledger.flags(first.id).dtypes, ledger.flags(second.id).dtypes)
    assert ledger.flags(second.id).empty
    for publication in (first, second):
        pairs = ledger.flagged_pairs(publication.id)
        whole = ledger.flags(publication.id)[["week", "store_id", "sku_id"]]
        pd.testing.assert_frame_equal(pairs, whole, check_index_type=False)
    series = ledger.segments_series(W34, 5)
    pd.testing.assert_series_equal(series.dtypes, ledger.segments_series(Week(2020, 1), 5).dtypes)


def test_a_flag_without_history_has_no_level(ledger, home):
    scores = make_result().scores.assign(level=math.nan)
    publication = publish(ledger, make_result(home=home, scores=scores))
    assert ledger.flags(publication.id)["level"].isna().all()


@pytest.mark.parametrize("value", [0.1 + 0.2, 5e-324, 1e300, -0.0, 1.0, 1 / 3], ids=lambda value: repr(value))
@on_both
def test_numbers_survive_the_database_to_the_last_bit(ledger, home, value):
    scores = make_result().scores.assign(expected_units=value)
    publication = publish(ledger, make_result(home=home, scores=scores))
    assert ledger.flags(publication.id)["expected_units"].tolist() == [value] * 3
    assert ledger.verify() == []


@on_both
def test_names_in_any_script_survive(ledger, home):
    scores = make_result().scores.assign(store_id=["Zürich 'Süd'", "東京", "a\\b\tc"] * 4)
    scores["sku_id"] = [f"K{number}" for number in range(12)]
    publication = publish(ledger, make_result(home=home, scores=scores))
    assert set(ledger.flags(publication.id)["store_id"]) <= {"Zürich 'Süd'", "東京", "a\\b\tc"}
    assert ledger.verify() == []


def test_the_same_inputs_again_change_nothing(ledger, home):
    first = publish(ledger, make_result(home=home))
    again = publish(ledger, make_result(home=home, attempt=1), by="bo")
    assert not again.created
    assert replace(again, created=True) == first
    assert ledger.publications() == (first,)
    assert [run.status for run in ledger.runs(W34)] == ["unchanged", "published"]


def test_publishing_the_very_same_run_again_writes_nothing(ledger, home):
    result = make_result(home=home)
    publish(ledger, result)
    head = ledger.head()
    assert not publish(ledger, result).created
    assert ledger.head() == head


@on_both
def test_new_inputs_supersede_and_the_old_publication_stays_readable(ledger, home):
    old, new = make_result(home=home), make_result(home=home, seed=1)
    first, second = publish(ledger, old), publish(ledger, new)
    assert (second.version, second.supersedes) == (2, first.id)
    assert ledger.current(W34) == second
    assert ledger.publications(W34) == (first, second)
    assert ledger.flags(first.id)["expected_units"].tolist() == old.flags["expected_units"].tolist()
    assert ledger.flags(second.id)["expected_units"].tolist() == new.flags["expected_units"].tolist()


def test_unchanged_is_about_what_is_live_now(ledger, home):
    old, new = make_result(home=home), make_result(home=home, seed=1)
    publish(ledger, old)
    assert ledger.find_unchanged(W34, old.provenance.input_key) == ledger.current(W34)
    assert ledger.find_unchanged(W34, new.provenance.input_key) is None
    assert ledger.find_unchanged(Week(2026, 35), old.provenance.input_key) is None
    publish(ledger, new)
    assert ledger.find_unchanged(W34, old.provenance.input_key) is None
    back = publish(ledger, make_result(home=home, attempt=1))
    assert (back.created, back.version) == (True, 3)


@pytest.mark.parametrize("part", ["data_hash", "config_hash", "code_version"])
def test_another_hash_is_another_input(ledger, home, part):
    publish(ledger, make_result(home=home))
    changed = make_result(home=home, attempt=1, **{part: "f" * 64})
    assert ledger.find_unchanged(W34, changed.provenance.input_key) is None
    assert publish(ledger, changed).version == 2


@on_both
def test_rollback_makes_the_previous_one_live_again_and_is_itself_recorded(ledger, home):
    first = publish(ledger, make_result(home=home))
    second = publish(ledger, make_result(home=home, seed=1))
    back = ledger.rollback(W34, by="bo", why="wrong costs")
    assert (back.kind, back.supersedes, back.source_id) == ("rollback", second.id, first.id)
    assert (back.published_by, back.reason) == ("bo", "wrong costs")
    assert ledger.current(W34) == back
    assert (back.run_id, back.input_key, back.report) == (first.run_id, first.input_key, first.report)
    pd.testing.assert_frame_equal(ledger.flags(back.id), ledger.flags(first.id))
    assert ledger.segments_series(W34, 1)["run_id"].unique().tolist() == [first.run_id]
    assert ledger.verify() == []


def test_rolling_back_twice_goes_back_two_steps_and_then_there_is_nothing(ledger, home):
    numbers = [publish(ledger, make_result(home=home, seed=seed)).id for seed in range(3)]
    assert ledger.rollback(W34, by="bo", why="x").source_id == numbers[1]
    assert ledger.rollback(W34, by="bo", why="y").source_id == numbers[0]
    with pytest.raises(UsageError, match="nothing before publication 1"):
        ledger.rollback(W34, by="bo", why="z")
    newer = publish(ledger, make_result(home=home, seed=9))
    assert newer.version == 6
    assert ledger.rollback(W34, by="bo", why="again").source_id == numbers[0]


def test_rollback_needs_a_publication_and_a_reason(ledger, home):
    with pytest.raises(UsageError, match="no publication"):
        ledger.rollback(W34, by="bo", why="x")
    publish(ledger, make_result(home=home))
    with pytest.raises(UsageError, match="reason"):
        ledger.rollback(W34, by="bo", why=" ")


@on_both
def test_what_was_live_at_a_moment_after_supersedes_and_a_rollback(ledger, home):
    made = [publish(ledger, make_result(home=home, seed=seed)) for seed in range(3)]
    made.append(ledger.rollback(W34, by="bo", why="x"))
    other = publish(ledger, make_result("2026-W35", home=home))
    for publication in made:
        assert ledger.live(as_of=publication.published_at) == (publication,)
    assert ledger.live(as_of=made[0].published_at - dt.timedelta(microseconds=1)) == ()
    assert ledger.live() == (made[-1], other)


def test_a_held_result_is_published_only_with_who_and_why(ledger, home):
    result = held_result(home=home)
    with pytest.raises(UsageError, match="did not converge in 200 steps"):
        publish(ledger, result)
    with pytest.raises(UsageError, match="who and why"):
        publish(ledger, result, override=Override("ana", " "))
    ledger.record_run(result, "held", by="cron")
    assert ledger.current(W34) is None
    override = Override("ana", "checked by hand")
    assert publish(ledger, result, override=override).override == override
    history = [(run.revision, run.status, run.recorded_by) for run in ledger.run_history(result.run_id)]
    assert history == [(1, "held", "cron"), (2, "published", "ana")]
    assert ledger.run(result.run_id).gate[0]["passed"] is False
    assert ledger.verify() == []


def test_an_override_that_was_not_needed_is_not_recorded(ledger, home):
    assert publish(ledger, make_result(home=home), override=Override("ana", "to be sure")).override is None


def test_a_shadow_run_is_recorded_but_never_published(ledger, home):
    result = make_result(home=home, shadow=True)
    with pytest.raises(UsageError, match="shadow"):
        publish(ledger, result)
    ledger.record_run(result, "shadow")
    assert (ledger.run(result.run_id).status, ledger.publications()) == ("shadow", ())
    assert len(ledger.segments(result.run_id)) == 2


def test_a_publication_without_its_report_is_refused(ledger, home):
    result = make_result(home=home)
    (result.folder / "report.html").unlink()
    with pytest.raises(LedgerError, match=r"report.html cannot be read .*nothing was published"):
        publish(ledger, result)
    assert ledger.runs() == ()


def test_flags_with_a_missing_number_are_refused_and_named(ledger, home):
    scores = make_result().scores
    scores.loc[0, "expected_units"] = np.nan
    with pytest.raises(DataError, match="1 flags have no expected_units: S000 K000"):
        publish(ledger, make_result(home=home, scores=scores))
    assert (ledger.runs(), ledger.publications()) == ((), ())


@on_both
def test_two_flags_of_one_pair_are_refused_as_a_whole(ledger, home):
    scores = make_result().scores.assign(store_id="S000", sku_id="K000")
    with pytest.raises(DataError, match="2 pairs are flagged twice: S000 K000, S000 K000"):
        publish(ledger, make_result(home=home, scores=scores))
    assert (ledger.runs(), ledger.publications(), ledger.verify()) == ((), (), [])


def test_a_run_id_names_one_result(ledger, home):
    ledger.record_run(make_result(home=home, run_id="one"), "held")
    with pytest.raises(UsageError, match="already in the ledger with another result"):
        ledger.record_run(make_result(home=home, seed=1, run_id="one"), "held")
    assert len(ledger.run_history("one")) == 1


def test_what_fails_after_publication_leaves_the_run_published_with_the_error(ledger, home):
    result = make_result(home=home)
    publish(ledger, result)
    info = RunInfo(result.run_id, W34, result.started_at, result.config, result.folder)
    ledger.record_run(info, "failed", error="the live copies could not be made")
    run = ledger.run(result.run_id)
    assert (run.revision, run.status, run.error) == (2, "published", "the live copies could not be made")
    assert (run.pairs_scored, run.data_hash) == (12, result.provenance.data_hash)
    assert ledger.verify() == []


def test_a_run_is_not_recorded_again_as_another_of_mlflow(ledger, home):
    result = make_result(home=home)
    publish(ledger, result)
    other = replace(result, provenance=replace(result.provenance, mlflow_run_id="another"))
    with pytest.raises(UsageError, match="already in the ledger with another mlflow_run_id"):
        ledger.record_run(other, "held")
    assert ledger.verify() == []


def write_late(path):
    time.sleep(0.3)
    path.write_bytes(b"late")


def test_what_is_still_being_written_is_waited_for_and_vouched_for(ledger, home):
    result = make_result(home=home)
    with ThreadPoolExecutor(1) as beside:
        late = result.folder / "late.parquet"
        publication = publish(ledger, result, last_file=beside.submit(write_late, late).result)
    assert publication.files["late.parquet"] == file_hash(late)
    assert ledger.verify() == []


def test_a_file_that_could_not_be_written_leaves_nothing_published(ledger, home):
    result = make_result(home=home)
    failed = Future()
    failed.set_exception(EwError("cannot write to the disk: it is full.", "free some space."))
    with pytest.raises(EwError, match="it is full"):
        publish(ledger, result, last_file=failed.result)
    assert ledger.publications() == ()
    assert ledger.verify() == []


def test_a_file_that_could_not_be_written_is_said_also_where_the_week_is_unchanged(ledger, home):
    publish(ledger, make_result(home=home))
    failed = Future()
    failed.set_exception(EwError("cannot write to the disk: it is full.", "free some space."))
    with pytest.raises(EwError, match="it is full"):
        publish(ledger, make_result(home=home, attempt=1), last_file=failed.result)
    assert [run.status for run in ledger.runs()] == ["published"]


@on_both
def test_others_publish_while_the_last_file_is_being_written(ledger, ledger_url, home):
    """They take the number that was to be this one's, too."""

    def wait_for_another():
        other = make_result("2026-W35", home=home)
        with Ledger.open(ledger_url, home=home, busy_seconds=0.5) as quick:
            publish(quick, other, by="bo")

    publication = publish(ledger, make_result(home=home), last_file=wait_for_another)
    assert [(one.id, one.published_by) for one in ledger.publications()] == [(1, "bo"), (2, "ana")]
    assert len(ledger.flags(publication.id)) == publication.flags_count == 3
    assert ledger.verify() == []


@on_both
def test_a_row_that_was_deleted_by_hand_points_to_the_audit(ledger, home):
    publish(ledger, make_result(home=home))
    with writing(ledger._engine) as connection:
        connection.execute(text("DELETE FROM flag_rows"))
        connection.execute(text("DELETE FROM publications"))
    with pytest.raises(LedgerError, match=r"(?s)Nothing was written.*ew audit verify"):
        publish(ledger, make_result(home=home, seed=1))


@on_both
def test_records_of_a_run_may_hold_any_mapping_and_numpy_values(ledger, home):
    result = make_result(home=home)
    contract = replace(result.contract, rows_read=MappingProxyType({"sales": np.int64(14)}))
    gate = (GateCheck("converged", np.bool_(True), "yes"),)
    publish(ledger, replace(result, contract=contract, gate=gate, timings={"fit": np.float64(1.5)}))
    run = ledger.run(result.run_id)
    assert (run.contract["rows_read"], run.timings) == ({"sales": 14}, {"fit": 1.5})
    assert run.contract["data_docs"] == f"runs/{result.run_id}/data_docs/index.html"
    assert run.gate == ({"name": "converged", "passed": True, "words": "yes"},)


@on_both
def test_infinite_values_are_kept_as_absent(ledger, home):
    result = make_result(home=home)
    open_end = replace(result.segments[0].theta, alpha_interval=(0.1, math.inf))
    segment = replace(result.segments[0], theta=open_end, null_gain=math.inf)
    publication = publish(ledger, replace(result, segments=(segment,)))
    assert ledger.flags(publication.id)["alpha_high"].isna().all()
    found = ledger.segments(result.run_id).set_index("segment").loc["all"]
    assert np.isnan(found["dispersion_size"])
    assert np.isnan(found["null_gain"])


def test_paths_follow_the_home_when_it_moves(tmp_path, home):
    result = make_result(home=home)
    with Ledger.open(f"sqlite:///{home / 'ledger.db'}") as ledger:
        publish(ledger, result)
    moved = home.rename(tmp_path / "moved")
    with Ledger.open(f"sqlite:///{moved / 'ledger.db'}") as ledger:
        publication = ledger.current(W34)
        assert publication.report == moved / "runs" / result.run_id / "report.html"
        assert file_hash(publication.report) == publication.report_hash
        assert ledger.run(result.run_id).folder == moved / "runs" / result.run_id
        assert ledger.verify() == []


def test_a_growing_log_is_not_vouched_for(ledger, home):
    result = make_result(home=home)
    (result.folder / "run.log").write_text("so far")
    assert "run.log" not in publish(ledger, result).files


def test_other_configurations_are_kept_whole(ledger, home):
    config = RunConfig(history_weeks=12, segment_by="department")
    result = make_result(home=home, config=config)
    publish(ledger, result)
    assert RunConfig.model_validate(ledger.run(result.run_id).config) == config
