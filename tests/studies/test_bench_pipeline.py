"""`ew bench pipeline`: what is made of the times of a week. tests/trials runs real ones."""

import pytest

from ew_pipeline.studies.bench.pipeline import END, START, of_pipeline, tool_costs


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
