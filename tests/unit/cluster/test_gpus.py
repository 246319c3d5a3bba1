"""A worker that has reserved no GPU sees none, although Ray leaves those of its node visible to it."""

import json
import os
from types import SimpleNamespace

import pytest
import ray

from rayrank.cluster.gpus import HIDE, hidden_without_reservation, hide_without_reservation
from rayrank.serve import replicas


@pytest.mark.parametrize(("ids", "seen"), [([], ""), (["1"], "0,1")])
def test_an_actor_without_a_gpu_hides_them_and_one_with_a_gpu_does_not(
    monkeypatch: pytest.MonkeyPatch, ids: list[str], seen: str
) -> None:
    context = SimpleNamespace(get_actor_id=lambda: "id", get_accelerator_ids=lambda: {"GPU": ids, "TPU": []})
    monkeypatch.setattr(ray, "is_initialized", lambda: True)
    monkeypatch.setattr(ray, "get_runtime_context", lambda: context)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    hide_without_reservation()
    assert os.environ["CUDA_VISIBLE_DEVICES"] == seen


def test_a_replica_of_the_model_hides_the_gpus_before_it_loads_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[bool] = []
    monkeypatch.setattr(replicas, "hide_without_reservation", lambda: called.append(True))
    replicas.Ranker()
    assert called


def test_a_process_outside_ray_keeps_its_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    was_initialized = ray.is_initialized()  # if another test of this process has started Ray
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    hide_without_reservation()
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "0"
    assert ray.is_initialized() == was_initialized


def test_a_variable_of_the_submitted_job_is_not_set_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_JOB_CONFIG_JSON_ENV_VAR", raising=False)
    assert hidden_without_reservation({"pip": []}) == {"pip": [], "env_vars": {HIDE: "1"}}
    # Ray refuses to merge two environments that set the same variable.
    own = {"runtime_env": {"env_vars": {HIDE: "0"}}}
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", json.dumps(own))
    assert hidden_without_reservation({"pip": []}) == {"pip": []}
