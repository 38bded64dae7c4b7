"""A second process loads what the first has compiled, and nothing that its sources have left behind.
Compilations are counted, never timed."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import ew_pipeline

pytestmark = pytest.mark.server

SCRIPT = """
import json
import numpy as np
from numba.core import event

with event.install_recorder("numba:compile") as record:
    from ew_pipeline import EntrywiseDetector
    from ew_pipeline.studies.bench.als import als
    from ew_pipeline.studies.ensemble import SparseSettings, draw_sparse

    sales = draw_sparse(SparseSettings(n=300, m=200, observed=8_000, rank=1), np.random.default_rng(0)).sales
    EntrywiseDetector("large", rank=2).fit(sales)
    EntrywiseDetector("large", noise="negative_binomial").fit(sales, level=np.ones(sales.n_observed))
    als(sales, 2, np.random.default_rng(0))
names = [one.data["dispatcher"].py_func.__qualname__ for _, one in record.buffer if one.is_start]
print(json.dumps(names))
"""


def compiled_in_a_new_process() -> list[str]:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def test_a_second_process_compiles_nothing_of_the_large_fit():
    compiled_in_a_new_process()
    assert compiled_in_a_new_process() == []


HELPER = """
from ew_pipeline.core.kernels import njit_inline
from ew_pipeline.method._of_a_test import TIMES

@njit_inline
def grown(x):
    return TIMES * x + 1.0
"""
KERNEL = """
from ew_pipeline.core.kernels import njit
from ew_pipeline.method import (
    _helper_of_a_test as helper,
)
grown = helper.grown

@njit
def kernel(x):
    return grown(x)
"""


@pytest.fixture
def package(tmp_path):
    """A copy of the package with a kernel, the function that is inlined into it, and a constant of that."""
    root = tmp_path / "ew_pipeline"
    shutil.copytree(Path(ew_pipeline.__file__).parent, root, ignore=shutil.ignore_patterns("__pycache__"))
    (root / "method" / "_of_a_test.py").write_text("TIMES = 2.0\n")
    (root / "method" / "_helper_of_a_test.py").write_text(HELPER)
    (root / "method" / "_kernel_of_a_test.py").write_text(KERNEL)
    return root / "method"


CALL = """
from ew_pipeline.method._kernel_of_a_test import kernel
print(kernel(3.0), sum(kernel.stats.cache_hits.values()))
"""


def result_and_hits(package, script=CALL):
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=package.parent.parent,
        env={**os.environ, "PYTHONPATH": str(package.parent.parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result, hits = done.stdout.split()
    return float(result), int(hits)


@pytest.mark.parametrize(
    ("file", "before", "after"),
    [("_helper_of_a_test.py", "+ 1.0", "+ 5.0"), ("_of_a_test.py", "2.0", "4.0")],
)
def test_a_kernel_is_compiled_again_when_what_it_inlines_has_changed(package, file, before, after):
    assert result_and_hits(package) == (7.0, 0)
    assert result_and_hits(package) == (7.0, 1)
    changed = package / file
    changed.write_text(changed.read_text().replace(before, after))
    result, hits = result_and_hits(package)
    assert hits == 0
    assert result == {"_helper_of_a_test.py": 11.0, "_of_a_test.py": 13.0}[file]
    kept = [path.name for path in package.rglob("_kernel_of_a_test.*.nb[ic]")]
    assert sorted(name[-4:] for name in kept) == [".nbc", ".nbi"], "what was made of the old sources stays"


TUPLE = """
from typing import NamedTuple

class Law(NamedTuple):
    rate: float
"""
OF_A_TUPLE = """
from ew_pipeline.method import _law_of_a_test
from ew_pipeline.core.kernels import njit

@njit
def kernel(law):
    return 2.0 * law.rate
"""
CALL_WITH_A_TUPLE = """
from ew_pipeline.method._kernel_of_a_test import kernel
from ew_pipeline.method._law_of_a_test import Law
print(kernel(Law(3.0)), sum(kernel.stats.cache_hits.values()))
"""


def test_a_kept_kernel_is_not_read_when_a_type_of_its_arguments_has_gone(package):
    law = package / "_law_of_a_test.py"
    law.write_text(TUPLE)
    (package / "_kernel_of_a_test.py").write_text(OF_A_TUPLE)
    assert result_and_hits(package, CALL_WITH_A_TUPLE) == (6.0, 0)
    assert result_and_hits(package, CALL_WITH_A_TUPLE) == (6.0, 1)
    law.write_text(TUPLE.replace("Law", "Rates"))
    assert result_and_hits(package, CALL_WITH_A_TUPLE.replace("Law", "Rates")) == (6.0, 0)


def test_a_source_that_is_not_found_is_an_error(package):
    unseen = '"""\nfrom ew_pipeline.method._gone import nothing\n"""\n'  # by Python, which takes it for text
    (package / "_kernel_of_a_test.py").write_text(unseen + KERNEL)
    with pytest.raises(AssertionError, match="_gone, which a kernel is made of, is not in"):
        result_and_hits(package)
