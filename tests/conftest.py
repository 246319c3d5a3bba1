"""What tests of every kind share."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

# Ray Train takes a checkpoint from its workers at every look at them; waiting for that is most of a short training.
os.environ.setdefault("RAY_TRAIN_HEALTH_CHECK_INTERVAL_S", "0.2")

# How long an example takes says more about the machine than about the code.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data sets beside the checkout."""
    folder = Path(__file__).resolve().parents[1] / ".." / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"the real data sets are not at {folder}")
    return folder.resolve()
