"""The code that kept results are named by."""

import pytest

from ew_pipeline.core.errors import EwError
from ew_pipeline.core.files import code_hash
from ew_pipeline.core.provenance import PACKAGE
from ew_pipeline.intake import checked_tables
from ew_pipeline.weekly import fit_cache, labelled_cache


@pytest.mark.parametrize("pattern", ["weekly/gone.py", "gone/*.py", "weekly"])
def test_a_pattern_without_a_file_is_an_error(pattern):
    with pytest.raises(EwError, match=f"no file of .* matches '{pattern}'".replace("*", ".*")):
        code_hash(("core/schema.py", pattern))


@pytest.mark.parametrize(
    "module", [checked_tables, fit_cache, labelled_cache], ids=lambda module: module.__name__
)
def test_every_kept_result_names_files_that_are_there(module):
    assert len(code_hash(module.SOURCES)) > 64
    assert all(list(PACKAGE.glob(pattern)) for pattern in module.SOURCES)
