"""The Serve application: `serve run serve.app:build model=DIR`."""

import math
import os
from typing import Any

import click
from ray import serve
from ray.serve.config import AutoscalingConfig

from rayrank.core.errors import RayrankError
from rayrank.serve.config import KEYS, ServeConfig, api_keys, read
from rayrank.serve.replicas import Api, Ranker, Search

INGRESS_REQUESTS = 4096
"""Concurrent requests of an ingress replica. The limit is so high that the model's queue refuses requests before it."""

HEALTH_S = 2
"""Seconds between two health checks of a replica, and thus until Serve replaces a dead one."""

SURGE_PERCENT = 25
"""Percentage of the replicas, at least one, that Serve starts before it stops old ones; the cluster needs room for
them."""

IDLE_S = 0.5
"""Seconds between two looks of a stopping replica whether it has requests left; an idle one takes as long to end."""

ONGOING_PER_TARGET = 8
"""With autoscaling, a replica accepts this many times the target of ongoing requests. The other requests wait outside,
where new replicas can take them."""

ONGOING_WITHOUT_AUTOSCALING = 256
"""Ongoing requests of a replica without autoscaling: its own queue shares the scorer fairly among them."""

MODEL_SETTINGS = {"model", "previous", "backend", "name", "long_documents", "batching"}
"""Settings that a replica of the model uses."""


def build(arguments: dict[str, Any]) -> serve.Application:
    """Return the application for Serve's command line, which prints a ClickException without a traceback."""
    try:
        return application(arguments)
    except RayrankError as error:
        raise click.ClickException(str(error)) from None


def application(arguments: dict[str, Any]) -> serve.Application:
    """Return the application; a wrong setting raises a one-line error before anything is started."""
    config = read(arguments)
    _check(config)
    settings = config.model_dump(mode="json")
    # Bound to the search settings only: a change of a bound setting restarts the replica, which writes all texts anew.
    search = _search(config).bind(settings["search"]) if config.search.run else None
    return _api(config, settings).bind(_ranker(config).bind(), search)


def _check(config: ServeConfig) -> None:
    """Open the model, the keys and the first stage once, so that errors appear here instead of in a replica's log."""
    from rayrank.bundle.export import load
    from rayrank.serve.first_stages import open_run

    load(config.model, config.backend)
    api_keys(config)
    if config.search.run:
        open_run(config.search.run)


def _replicas(config: ServeConfig) -> dict[str, Any]:
    """Return what all deployments have in common."""
    return {
        "health_check_period_s": HEALTH_S,
        "graceful_shutdown_wait_loop_s": IDLE_S,
        "graceful_shutdown_timeout_s": config.scaling.drain_s,
        "max_surge_percent": SURGE_PERCENT,
        "logging_config": {"enable_access_log": False},
    }


def _ranker(config: ServeConfig) -> serve.Deployment:
    scaling = config.scaling
    autoscales = scaling.max > scaling.min
    ongoing = math.ceil(ONGOING_PER_TARGET * scaling.target) if autoscales else ONGOING_WITHOUT_AUTOSCALING
    return serve.deployment(
        name="Ranker",
        user_config=config.model_dump(mode="json", include=MODEL_SETTINGS),
        ray_actor_options={"num_cpus": config.resources.cpus, "num_gpus": config.resources.gpus},
        max_ongoing_requests=scaling.most or ongoing,
        max_queued_requests=scaling.queued,
        autoscaling_config=AutoscalingConfig(
            min_replicas=scaling.min,
            max_replicas=scaling.max,
            target_ongoing_requests=scaling.target,
            upscale_delay_s=scaling.upscale_delay_s,
            downscale_delay_s=scaling.downscale_delay_s,
            # Serve's defaults, 10 and 30 seconds, are longer than upscale_delay_s. Ray deprecates metrics_interval_s in
            # favour of an environment variable of the whole cluster, which would affect other applications too.
            metrics_interval_s=0.5,
            look_back_period_s=2,
        ),
        **_replicas(config),
    )(Ranker)


def _search(config: ServeConfig) -> serve.Deployment:
    return serve.deployment(
        name="Search",
        ray_actor_options={"num_cpus": config.search.cpus},
        max_queued_requests=config.scaling.queued,
        **_replicas(config),
    )(Search)


def _api(config: ServeConfig, settings: dict[str, Any]) -> serve.Deployment:
    # Passes the keys on to a cluster that was started without them.
    keys = {KEYS: os.environ[KEYS]} if os.environ.get(KEYS) else {}
    return serve.deployment(
        name="Api",
        user_config=settings,
        num_replicas=config.resources.ingress,
        ray_actor_options={"num_cpus": config.resources.ingress_cpus, "runtime_env": {"env_vars": keys}},
        max_ongoing_requests=INGRESS_REQUESTS,
        **_replicas(config),
    )(serve.ingress()(Api))
