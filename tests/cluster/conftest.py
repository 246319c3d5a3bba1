"""An embedded Ray for a file of tests."""

from collections.abc import Iterator

import pytest
import ray

from rayrank.stages.cluster import start_ray


@pytest.fixture(scope="module")
def ray_cluster() -> Iterator[None]:
    start_ray()
    yield
    ray.shutdown()
