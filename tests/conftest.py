"""Settings shared by all tests.

Numbers are compared bit for bit only where the same call is made twice. Two ways to one number agree to 1e-9:
a processor adds up in another order when arrays lie elsewhere in memory.
"""

import pytest
from hypothesis import settings
from support.browser import install_in_the_background

# A shared machine can be slow for reasons that have nothing to do with the code under test.
settings.register_profile("no-deadline", deadline=None)
settings.load_profile("no-deadline")

pytest_plugins = [f"support.{name}" for name in ("started", "cpu", "warm_kernels", "ledgers", "wheel")]

# Files that run whole weeks or start servers go first: workers take files as they come, and a long one
# at the end would leave the others without work.
LONGEST_FIRST = (
    "golden/",
    "weekly/",
    "cluster/",
    "flows/",
    "tracking/",
    "backtest/",
    "audit/",
    "drift/",
    "web/",
    "ledger/",
    "outputs/",
)


# Files that share what takes long to start, and so run in one process: a Dask cluster; a server of forks that
# has imported everything; the installed wheel.
TOGETHER = {
    "forks": (
        "tests/cluster/",
        "tests/ledger/",
        "tests/tracking/test_tracking_store",
        "tests/weekly/test_backfill",
        "tests/weekly/test_crashes",
        "tests/weekly/test_faults",
    ),
    "wheel": ("tests/golden/test_golden_run", "tests/test_wheel"),
}


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """By file, as ``--dist loadfile``, and those together."""
    from xdist.scheduler import LoadFileScheduling

    class ByFileOrTogether(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return next(
                (name for name, starts in TOGETHER.items() if nodeid.startswith(starts)),
                nodeid.split("::")[0],
            )

    return ByFileOrTogether(config, log)


def pytest_collection_modifyitems(items):
    """Stable: within a folder the order stays."""

    def place(item):
        name = item.nodeid.removeprefix("tests/")
        return next(
            (k for k, start in enumerate(LONGEST_FIRST) if name.startswith(start)), len(LONGEST_FIRST)
        )

    items.sort(key=place)


def pytest_collection_finish(session):
    in_browser = any(item.get_closest_marker("browser") for item in session.items)
    if in_browser and not session.config.option.collectonly:
        install_in_the_background()
