"""`ew bench pipeline`: a real small week; figures are looked at for sense, never for speed."""

import pytest

from ew_pipeline.bench.pipeline import (
    END,
    START,
    fits_and_others,
    of_pipeline,
    one_week,
    stages_table,
    tool_costs,
)
from ew_pipeline.bench.stored import Size


@pytest.fixture(scope="module")
def week(tmp_path_factory):
    return one_week(Size(60, 40, 1_000, 1), tmp_path_factory.mktemp("week"), orchestrate=False, mode="fast")


def test_a_week_says_how_long_each_stage_took_and_what_it_held(week):
    assert week["rows"] == 1000
    assert week["status"] == "published"
    assert {"check the data", "fit the detector", "track in MLflow", "publish"} <= set(week["stages_s"])
    assert sum(week["stages_s"].values()) == pytest.approx(week["wall_s"])
    assert all(seconds >= 0 for seconds in week["stages_s"].values())
    assert week["cpu_s"] > 1.0  # of all processes, those that have ended included
    assert 0.1 < week["peak_gb"] < 8.0
    assert stages_table([week, week]).row_count == len(week["stages_s"]) + 3


def test_what_the_tools_add_is_summed_and_judged():
    plain = {"wall_s": 20.0, "stages_s": {"track in MLflow": 1.5, "publish": 2.0}}
    tools = tool_costs({"wall_s": 26.0}, plain, checking=4.0)
    assert tools == {"Prefect": 6.0, "MLflow": 1.5, "Great Expectations": 4.0}
    one = {"rows": 10, "weeks": 1, "peak_gb": 9.0}
    one["stages_s"] = {START: 7.0, "fit the detector": 10.0, "publish": 5.0, END: 3.0}
    learnt = {
        "fit the detector": 1.0,
        "fit past weeks": 3.0,
        "price the evidence": 2.0,
        "publish": 3.0,
        START: 7.0,
    }
    largest = {"rows": 10, "weeks": 5, "peak_gb": 1.0, "stages_s": learnt}
    with_past, share, memory, cost = of_pipeline(largest, one, tools)
    assert (with_past.what, with_past.seen) == (
        "stages outside the fits over these, 10 rows of 5 weeks",
        1.25,
    )
    assert not with_past.passed
    assert (share.seen, share.required, share.passed) == (pytest.approx(0.5), "", None)
    assert (memory.seen, memory.passed, cost.passed, cost.seen) == (9.0, False, True, 11.5)


def test_a_week_with_its_past_is_priced_by_it_after_the_week_before(week, tmp_path):
    assert (week["priced"], week["publication"]) == ("posterior", 1)
    week = one_week(Size(60, 40, 1_000, 1), tmp_path, orchestrate=False, mode="fast", weeks=13)
    assert (week["rows"], week["weeks"]) == (13_000, 13)
    assert "history" in week["priced"]
    assert week["publication"] == 2  # the first is that of the week before, in the same home
    fits, others = fits_and_others(week)
    assert fits + others == pytest.approx(week["wall_s"] - week["stages_s"][START] - week["stages_s"][END])
