"""A worker uses a GPU only if it has reserved one: Ray leaves the GPUs of its node visible to one that has not.

Ray is imported inside functions, because importing it takes seconds and reading settings does not need it.
"""

import json
import os
from typing import Any

HIDE = "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"
"""The environment variable of a worker with which Ray hides all GPUs from it while it has reserved none."""


def hidden_without_reservation(runtime_env: dict[str, Any]) -> dict[str, Any]:
    """Return a runtime environment in which Ray hides the GPUs from the workers that have reserved none."""
    job = json.loads(os.environ.get("RAY_JOB_CONFIG_JSON_ENV_VAR") or "{}").get("runtime_env") or {}
    # Ray refuses a variable that the runtime environment of the submitted job sets, too.
    if HIDE in (job.get("env_vars") or {}):
        return runtime_env
    return {**runtime_env, "env_vars": {HIDE: "1"}}


def hide_without_reservation() -> None:
    """Hide the GPUs from this process if it is an actor that has reserved none, before it uses torch.

    For actors of Ray Serve, which other processes than ours may have started."""
    import ray

    # Without a running Ray, get_runtime_context would start one.
    if not ray.is_initialized() or not ray.get_runtime_context().get_actor_id():
        return
    if not ray.get_runtime_context().get_accelerator_ids().get("GPU"):
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
