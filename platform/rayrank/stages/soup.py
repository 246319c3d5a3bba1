"""Soup: the mean of the weights of listwise models that start from the same model and differ in the phase's seed."""

import time

from rayrank.core import flow
from rayrank.core.artifacts import Artifact, Store
from rayrank.core.config import PipelineConfig
from rayrank.core.errors import ConfigError
from rayrank.models.saved import save_average


def run(config: PipelineConfig, store: Store) -> Artifact:
    """Return the soup artifact: model/. Its run is measured as any other, so dev says whether it is worth using."""
    if done := store.find("soup", config):
        return done
    if not config.listwise.soup:
        raise ConfigError("A soup needs seeds: set two or more, as in listwise.soup=[13,14,15].")
    started = time.monotonic()
    artifact = store.artifact("soup", config)
    members = [store.require(name, config) for name in flow.inputs("soup", config)]
    save_average(artifact, members)
    devs = [member.manifest["dev"] for member in members]
    figures = ", ".join(f"{dev:.4f}" for dev in devs)
    finding = f"soup: the mean of {len(members)} listwise models, which have {config.training.metric} {figures} on dev"
    facts = {"seeds": list(config.listwise.soup), "devs": devs, "findings": [finding]}
    return store.finish(artifact, config, started, facts)
