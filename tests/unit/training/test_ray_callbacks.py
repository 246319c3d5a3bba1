"""Trainings start none of Ray Train's processes that this package does not need."""

import ray.train.torch

from rayrank.training.ray_train import UNUSED, _Trainer


def named(trainer: ray.train.torch.TorchTrainer) -> list[str]:
    return [type(callback).__name__ for callback in trainer._create_default_callbacks()]


def test_a_training_leaves_out_two_processes_that_ray_train_would_start_by_itself() -> None:
    usual, ours = (named(kind(print)) for kind in (ray.train.torch.TorchTrainer, _Trainer))
    assert [name for name in usual if name not in ours] == sorted(UNUSED, key=usual.index)
    assert [name for name in ours if name not in usual] == []
