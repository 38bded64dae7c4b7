"""What a run keeps from the garbage collector it gives back, also when it fails."""

import gc

import pytest

from ew_pipeline.weekly.command import _imports_set_aside


def test_what_is_set_aside_during_a_run_is_given_back_at_its_end():
    before = gc.get_freeze_count()
    with pytest.raises(ValueError, match="no week"), _imports_set_aside():
        assert gc.get_freeze_count() > before
        raise ValueError("no week")
    assert gc.get_freeze_count() == 0  # or libraries would report leaks when the process ends
