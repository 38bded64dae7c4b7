"""What a person asks for, before anything is run."""

from __future__ import annotations

from ew_pipeline.weekly.request import asked_changes


def test_options_win_over_the_file_and_what_was_not_given_changes_nothing(tmp_path):
    file = tmp_path / "week.toml"
    file.write_text('zero_rule = "listing"\nhistory_weeks = 4\n[detector]\nmode = "fast"\nrank = 2\n')
    asked = asked_changes(file, zero_rule="explicit", history=False, segment_by=None, detector_mode="large")
    assert asked == {
        "zero_rule": "explicit",
        "history_weeks": 4,
        "history": False,
        "detector": {"mode": "large", "rank": 2},
    }
    assert asked_changes(None, segment_by=None, detector_mode=None) == {}
    assert asked_changes(None, detector_random_state=0) == {"detector": {"random_state": 0}}
