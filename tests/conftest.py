"""What tests of every kind share."""

import os
from pathlib import Path
from shutil import which
from typing import Any

import pytest
from hypothesis import settings
from xdist.scheduler import LoadFileScheduling

# Ray Train takes a checkpoint from its workers at every look at them; waiting for that is most of a short training.
os.environ.setdefault("RAY_TRAIN_HEALTH_CHECK_INTERVAL_S", "0.2")
if which("nvidia-smi") is None:
    # Without a GPU kernels run in Python; Triton asks for this when it is first imported.
    os.environ.setdefault("TRITON_INTERPRET", "1")
if "PYTEST_XDIST_WORKER" in os.environ:
    # Two processes with a thread for each core would spend their time waiting for each other's.
    os.environ.setdefault("OMP_NUM_THREADS", "1")

# How long an example takes says more about the machine than about the code.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")


TRAINED = (
    "test_sweep.py",
    "test_toy_run.py",
    "test_trained_jobs.py",
    "test_training_faults.py",
    "test_training_inputs.py",
)
"""Files that share the trained models, which take a minute to make."""


class ByFile(LoadFileScheduling):
    """Keeps what is dear in one process: a file's fixtures, and the trained models."""

    def _split_scope(self, nodeid: str) -> str:
        file = str(super()._split_scope(nodeid))
        return "trained" if file.endswith(TRAINED) else file


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # One process is busy with these for as long as the other is with all the rest.
    items.sort(key=lambda item: item.path.name not in TRAINED)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling | None:
    return ByFile(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data sets beside the checkout."""
    folder = Path(__file__).resolve().parents[1] / ".." / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"the real data sets are not at {folder}")
    return folder.resolve()
