"""The workers of a job see no GPU unless they have reserved one."""

import os

import ray


@ray.remote(num_cpus=0)
def visible() -> str | None:
    return os.environ.get("CUDA_VISIBLE_DEVICES")


def test_a_worker_that_has_reserved_no_gpu_sees_none(ray_cluster: None) -> None:
    assert ray.get(visible.remote()) == ""
