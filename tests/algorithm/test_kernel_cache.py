"""A second process loads what the first has compiled. Compilations are counted, never timed."""

import json
import subprocess
import sys

SCRIPT = """
import json
import numpy as np
from numba.core import event

with event.install_recorder("numba:compile") as record:
    from ew_pipeline import EntrywiseDetector
    from ew_pipeline.algorithm.als import als
    from ew_pipeline.data.synthetic_sparse import SparseSettings, draw_sparse

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
