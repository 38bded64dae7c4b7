"""The same week on another kind of machine: flags must not depend on the width of its vectors."""

import os
import platform
import subprocess
import sys

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from ew_pipeline.core.kernels import BASELINE, kernel_target

FIT = """
import sys
import numpy as np
from ew_pipeline import Costs, EntrywiseDetector
from ew_pipeline.studies.ensemble import EnsembleSettings, draw_instance

square = np.random.default_rng(0).random((300, 300))
found = {"exp": np.exp(square), "product": square @ square}
for name, noise in (
    ("poisson", {}), ("overdispersed", {"noise": "negative_binomial", "dispersion_size": 5.0})
):
    settings = EnsembleSettings(n=40, m=50, **noise)
    sales = draw_instance(settings, np.random.default_rng(12)).sales
    level = 1.0 + 0.5 * np.sin(np.arange(sales.n_observed))
    fit = EntrywiseDetector("thorough", rank=3, anomaly="exponential", random_state=0).fit(sales, level=level)
    found[name] = fit.anomaly_probability_
    found[name + "_flags"] = fit.decide(Costs(false_alarm=1.0, missed=12.0))
# many pairs, as that tier is meant for: on a few, theta lies on a plateau and a last bit moves it
settings = EnsembleSettings(n=250, m=250, observed_share=0.9, noise="negative_binomial", dispersion_size=5.0)
sales = draw_instance(settings, np.random.default_rng(12)).sales
level = 1.0 + 0.125 * (np.arange(sales.n_observed) % 5)
fit = EntrywiseDetector("large", rank=3, random_state=0).fit(sales, level=level)
found["large"] = fit.anomaly_probability_
found["large_flags"] = fit.decide(Costs(false_alarm=1.0, missed=12.0))
np.savez(sys.argv[1], **found)
"""
OLDER = {
    "NPY_DISABLE_CPU_FEATURES": "X86_V4 X86_V3 AVX512_ICL AVX512_SPR",
    "OPENBLAS_CORETYPE": "Nehalem",
    "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX512F,-AVX512VL,-AVX512BW,-AVX512DQ",
}


@pytest.mark.server
@pytest.mark.skipif(platform.machine() != "x86_64", reason="other processors are imitated on x86-64 only")
def test_older_processor_gives_the_same_flags(tmp_path):
    # numpy and OpenBLAS choose older code paths, as on a machine without wide vectors
    fits = []
    for name, settings in (("here", {}), ("older", OLDER)):
        out = tmp_path / f"{name}.npz"
        subprocess.run(
            [sys.executable, "-W", "ignore", "-c", FIT, str(out)], env={**os.environ, **settings}, check=True
        )
        fits.append(dict(np.load(out)))
    here, older = fits
    if all((here[name] == older[name]).all() for name in ("exp", "product")):
        pytest.skip("this processor is the older kind: there is nothing to imitate")
    for fit, tolerance in (("poisson", 1e-9), ("overdispersed", 1e-9), ("large", 1e-9)):
        assert_allclose(here[fit], older[fit], rtol=0, atol=tolerance)
        assert_array_equal(here[f"{fit}_flags"], older[f"{fit}_flags"])
        assert here[f"{fit}_flags"].any()


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the baseline is one of x86-64")
def test_kernels_are_compiled_for_the_baseline():
    assert kernel_target() == os.environ.get("NUMBA_CPU_NAME", BASELINE)
