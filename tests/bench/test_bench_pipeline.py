"""`ew bench pipeline`: a real small week; figures are looked at for sense, never for speed."""

import pytest

from ew_pipeline.bench.pipeline import END, START, of_pipeline, one_week, stages_table, tool_costs
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
    stages = {START: 7.0, "fit the detector": 10.0, "publish": 5.0, END: 3.0}
    largest = {"rows": 10, "peak_gb": 9.0, "stages_s": stages}
    memory, cost, share = of_pipeline(largest, tools)
    assert (memory.passed, cost.passed, cost.seen) == (False, True, 11.5)
    assert share.seen == pytest.approx(0.5)
