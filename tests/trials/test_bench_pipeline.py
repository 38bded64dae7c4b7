"""`ew bench pipeline`: a real small week; figures are looked at for sense, never for speed."""

import pytest

from ew_pipeline.studies.bench.pipeline import END, START, fits_and_others, one_week, stages_table
from ew_pipeline.studies.bench.stored import Size

pytestmark = pytest.mark.server


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


def test_a_week_with_its_past_is_priced_by_it_after_the_week_before(week, tmp_path):
    assert (week["priced"], week["publication"]) == ("posterior", 1)
    week = one_week(Size(60, 40, 1_000, 1), tmp_path, orchestrate=False, mode="fast", weeks=13)
    assert (week["rows"], week["weeks"]) == (13_000, 13)
    assert "history" in week["priced"]
    assert week["publication"] == 2  # the first is that of the week before, in the same home
    fits, others = fits_and_others(week)
    assert fits + others == pytest.approx(week["wall_s"] - week["stages_s"][START] - week["stages_s"][END])
