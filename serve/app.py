"""The Serve application: `rayrank serve --model DIR`, or `serve run rayrank.serve.app:build model=DIR`."""

import math
import os
import sys
from pathlib import Path
from typing import Any

import click
import ray
from ray import serve
from ray._private.services import canonicalize_bootstrap_address
from ray.serve.config import AutoscalingConfig

from rayrank.core.errors import RayrankError
from rayrank.serve.config import ServeConfig, read
from rayrank.serve.deployments import INGRESS, RANKER, SEARCH, further_ranker
from rayrank.serve.keys import ApiKeys, environment_digests
from rayrank.serve.ports import check_free
from rayrank.serve.replicas import Api, Ranker, Search
from rayrank.serve.telemetry import check_installed

INGRESS_REQUESTS = 4096
"""Concurrent requests of an ingress replica. The limit is so high that the model's queue refuses requests before it."""

SERVE_RUN_PORT = 8000
"""The port of `serve run`, which has no option for another."""

CORES_FOR_TWO_INGRESSES = 4
"""Cores from which on there are two ingress replicas by default: if one dies, the other takes its clients."""

HEALTH_S = 2
"""Seconds between two health checks of a replica, and thus until Serve replaces a dead one."""

SILENT_S = 5
"""Seconds that a replica has to answer a health check. Serve replaces it if it fails three in a row."""

SURGE_PERCENT = 25
"""Percentage of the replicas, at least one, that Serve starts before it stops old ones; the cluster needs room for
them."""

IDLE_S = 0.5
"""Seconds between two checks of a stopping replica whether it has requests left; an idle one takes as long to end."""

ONGOING_PER_TARGET = 8
"""With autoscaling, a replica accepts this many times the target of ongoing requests. The other requests wait outside,
where new replicas can take them."""

ONGOING_WITHOUT_AUTOSCALING = 256
"""Ongoing requests of a replica without autoscaling: its own queue shares the scorer fairly among them."""

MODEL_SETTINGS: dict[str, Any] = {
    **dict.fromkeys(("model", "previous", "backend", "name", "batching", "long_documents"), True),
    "resources": {"cpus", "gpus"},
}
"""Settings that a replica of the model uses, or needs to validate these: torch-fp8 is refused without GPUs. A change of
any but `previous`, which `rayrank promote --back` reads there, loads the model anew."""


def build(arguments: dict[str, Any]) -> serve.Application:
    """Return the application for Serve's command line, which prints a ClickException without a traceback."""
    try:
        if _starts_a_server():
            check_free("127.0.0.1", SERVE_RUN_PORT)
        return application(arguments)
    except RayrankError as error:
        raise click.ClickException(str(error)) from None


def _starts_a_server() -> bool:
    """Whether this process is `serve run`, and will start a Ray of its own because it has none to join."""
    is_serve_run = sys.argv[1:2] == ["run"] and Path(sys.argv[0]).stem in ("serve", "scripts")
    if not is_serve_run or ray.is_initialized() or {"-a", "--address"} & set(sys.argv):
        return False
    # As ray.init does without an address.
    return canonicalize_bootstrap_address(None) is None  # type: ignore[arg-type]


def application(arguments: dict[str, Any]) -> serve.Application:
    """Return the application; a wrong setting raises a one-line error before anything is started."""
    config = read(arguments)
    _check(config)
    settings = config.model_dump(mode="json")
    # Bound to the search settings only: a change of a bound setting restarts the replica, which writes all texts anew.
    search = _search(config).bind(settings["search"]) if config.search.run else None
    first, *more = config.each().items()
    # The first model is bound without its name, which a promotion may change.
    further = {name: _ranker(each, further_ranker(name)).bind() for name, each in more}
    return _api(config, settings).bind(_ranker(first[1]).bind(), search, further)


def _check(config: ServeConfig) -> None:
    """Open the models, the keys and the first stage once, so that errors appear here instead of in a replica's log."""
    from rayrank.bundle.export import load_for_serving
    from rayrank.serve.first_stages import open_run

    for each in config.each().values():
        load_for_serving(each.model, each.backend)
    ApiKeys(config)
    if config.http.otlp:
        check_installed(config.http.otlp)
    if config.search.run:
        open_run(config.search.run)


def _replicas(config: ServeConfig) -> dict[str, Any]:
    """Return what all deployments have in common."""
    return {
        "health_check_period_s": HEALTH_S,
        "health_check_timeout_s": SILENT_S,
        "graceful_shutdown_wait_loop_s": IDLE_S,
        "graceful_shutdown_timeout_s": config.scaling.drain_s,
        "max_surge_percent": SURGE_PERCENT,
        "logging_config": {"enable_access_log": False},
    }


def _ranker(config: ServeConfig, deployment: str = RANKER) -> serve.Deployment:
    scaling = config.scaling
    autoscales = scaling.max > scaling.min
    ongoing = math.ceil(ONGOING_PER_TARGET * scaling.target) if autoscales else ONGOING_WITHOUT_AUTOSCALING
    return serve.deployment(
        name=deployment,
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
        name=SEARCH,
        num_replicas=config.search.replicas,
        ray_actor_options={"num_cpus": config.search.cpus},
        max_ongoing_requests=config.search.concurrent,
        max_queued_requests=config.scaling.queued,
        **_replicas(config),
    )(Search)


def _api(config: ServeConfig, settings: dict[str, Any]) -> serve.Deployment:
    number = config.resources.ingress or (2 if (os.cpu_count() or 1) >= CORES_FOR_TWO_INGRESSES else 1)
    # Passes the keys on to a cluster that was started without them, as digests: Ray shows settings to all its users.
    for_keys = {"given": environment_digests(), "num_ingresses": number}
    return serve.deployment(
        name=INGRESS,
        user_config={"settings": settings, "for_keys": for_keys},
        num_replicas=number,
        ray_actor_options={"num_cpus": config.resources.ingress_cpus},
        max_ongoing_requests=INGRESS_REQUESTS,
        **_replicas(config),
    )(serve.ingress()(Api))
