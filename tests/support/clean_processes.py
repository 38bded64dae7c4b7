"""Processes that inherit nothing of the tests before them: no threads, no locks, no open databases.

Each is a fork of one server that has the libraries loaded and has run nothing. There is one server in every
process of pytest, so what it loads is named here, for all tests that start such processes. Modules of tests
are not among it: until Python 3.13 the server does not know their folder, and passes over what is not found.

Import it as ``from clean_processes import clean`` (``tests/`` is on the path of every test).
"""

from __future__ import annotations

import multiprocessing

clean = multiprocessing.get_context("forkserver")
clean.set_forkserver_preload(
    [
        "alembic.command",
        "distributed",
        "mlflow.store.db.utils",
        "mlflow.tracking",
        "pytest",
        "ew_pipeline.intake.expectations",
        "ew_pipeline.intake.gx_whole_numbers",  # and with it Great Expectations
        "ew_pipeline.simulate",
        "ew_pipeline.cluster.run_blocks",
        "ew_pipeline.cluster.segments",
        "ew_pipeline.cluster.weeks",
        "ew_pipeline.outputs.page",
        "ew_pipeline.weekly.request",
        "ew_pipeline.weekly.run",
    ]
)
