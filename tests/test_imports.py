"""The import rules: the algorithm stays pure, and importing does nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

NOT_IN_THE_ALGORITHM = {
    "dask",
    "distributed",
    "great_expectations",
    "matplotlib",
    "mlflow",
    "pandas",
    "prefect",
    "rich",
    "typer",
}

IMPORT_ALL = """
import importlib, pkgutil, sys
package = importlib.import_module(sys.argv[1])
for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
"""

LIST_MODULES = """
import json
print(json.dumps([sorted({name.partition(".")[0] for name in sys.modules}),
                  sorted(name for name in sys.modules if name.startswith("ew_pipeline."))]))
"""


def run_python(program: str, *arguments: str, home: Path) -> subprocess.CompletedProcess[str]:
    """A fresh interpreter in an empty working folder that is also its home."""
    environment = {key: os.environ[key] for key in ("PATH", "NUMBA_CACHE_DIR") if key in os.environ}
    environment |= {"HOME": str(home), "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=home,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )


def test_the_algorithm_imports_only_numeric_libraries(tmp_path):
    answer = run_python(IMPORT_ALL + LIST_MODULES, "ew_pipeline.algorithm", home=tmp_path)
    libraries, ours = json.loads(answer.stdout)
    assert "ew_pipeline.algorithm.factors" in ours  # the walk reached the modules
    assert not NOT_IN_THE_ALGORITHM & set(libraries)


@pytest.mark.parametrize("program", ["import ew_pipeline", IMPORT_ALL], ids=["the package", "every module"])
def test_importing_prints_nothing_and_leaves_no_files(program, tmp_path):
    answer = run_python(program, "ew_pipeline", home=tmp_path)
    assert (answer.stdout, answer.stderr) == ("", "")
    assert list(tmp_path.rglob("*")) == []


def test_importing_the_package_loads_no_library(tmp_path):
    answer = run_python("import sys, ew_pipeline" + LIST_MODULES, home=tmp_path)
    libraries, _ = json.loads(answer.stdout)
    assert not {"numba", "numpy", "pandas", "scipy"} & set(libraries)


def test_every_exported_name_can_be_imported(tmp_path):
    run_python("from ew_pipeline import *\nimport ew_pipeline\nassert ew_pipeline.__all__", home=tmp_path)


def test_an_unknown_name_is_an_attribute_error():
    import ew_pipeline

    with pytest.raises(AttributeError, match="no attribute 'SalesMatrices'"):
        _ = ew_pipeline.SalesMatrices
