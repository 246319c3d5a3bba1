"""One embedded Ray for the tests that need one."""

from collections.abc import Iterator

import pytest
import ray

from rayrank.stages.cluster import start_ray


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[None]:
    start_ray()
    yield
    ray.shutdown()
