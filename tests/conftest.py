"""Settings and fixtures of all tests, and how tests are divided between two processes."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from shutil import which
from typing import Any

import pytest
from hypothesis import settings
from xdist.scheduler import LoadFileScheduling

# Ray Train polls its workers for checkpoints at this interval, and a short training mostly waits for the poll.
os.environ.setdefault("RAY_TRAIN_HEALTH_CHECK_INTERVAL_S", "0.2")
# One process less in each training: no node of a test is ever preempted.
os.environ.setdefault("RAY_TRAIN_ENABLE_PREEMPTION_WATCHER", "0")
# Nobody reads Ray Train's metrics of a test.
os.environ.setdefault("RAY_TRAIN_METRICS_ENABLED", "0")
# By default Ray's workers give way to all other processes, here to the other half of the tests.
os.environ.setdefault("RAY_worker_niceness", "0")
if which("nvidia-smi") is None:
    # Without a GPU, Triton interprets kernels in Python; it reads this variable at its first import.
    os.environ.setdefault("TRITON_INTERPRET", "1")
if "PYTEST_XDIST_WORKER" in os.environ:
    # Two processes with one thread per core each would compete for the cores.
    os.environ.setdefault("OMP_NUM_THREADS", "1")

# Hypothesis' deadline per example would fail on a slow machine, not on slow code.
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")

SHARING = ("tests/cluster/", "tests/serve/")
"""Folders whose tests share one Ray and run before the other tests."""

TRAINED = ("sdnet_stages", "sweep", "toy_run", "trained_jobs", "training_faults", "training_inputs")
"""The files of tests/cluster that share a trained pipeline; the others run in the other process meanwhile."""


CHROMIUM_FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
).split()


class ByFolder(LoadFileScheduling):
    """Sends tests that share a Ray or a trained pipeline, and otherwise the tests of a file, to the same process."""

    def _split_scope(self, nodeid: str) -> str:
        file = str(super()._split_scope(nodeid))
        if file in {f"tests/cluster/test_{name}.py" for name in TRAINED}:
            return "tests with a trained pipeline"
        return next((folder for folder in SHARING if file.startswith(folder)), file)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--slow-minutes", type=float, default=float("inf"), help="start no test marked slow after so many minutes"
    )


BEGAN = time.monotonic()


@pytest.hookimpl(tryfirst=True)  # before the fixtures of the test are made
def pytest_runtest_setup(item: pytest.Item) -> None:
    minutes = item.config.getoption("slow_minutes")
    if item.get_closest_marker("slow") and time.monotonic() - BEGAN > 60 * minutes:
        pytest.skip(f"slow, and --slow-minutes {minutes:g} have passed")


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling | None:
    return ByFolder(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # The longest groups first, so that both processes end at about the same time.
    items.sort(key=lambda item: not item.nodeid.startswith(SHARING))


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium without a window, driven by playwright; tests are skipped where one of them is missing."""
    playwright = pytest.importorskip("playwright.sync_api", reason="pages are driven by the package playwright")
    if (chromium := which("chromium")) is None:
        pytest.skip("pages are opened in chromium, which is not installed")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=CHROMIUM_FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real datasets, which is next to the checkout on machines that have it."""
    folder = Path(__file__).resolve().parents[1] / ".." / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"the real data sets are not at {folder}")
    return folder.resolve()
