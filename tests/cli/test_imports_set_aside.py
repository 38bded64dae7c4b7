"""What a run keeps from the garbage collector it gives back, also when it fails."""

import gc

import pytest

from ew_pipeline.cli.run import _imports_set_aside


def failing_run():
    with _imports_set_aside():
        raise ValueError(f"{gc.get_freeze_count() > 0}")


def test_what_is_set_aside_during_a_run_is_given_back_at_its_end():
    with pytest.raises(ValueError, match="True"):
        failing_run()
    assert gc.get_freeze_count() == 0  # or libraries would report leaks when the process ends
