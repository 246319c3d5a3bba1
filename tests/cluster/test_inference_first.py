"""A model that is trained on natural language inference first, and from there on the passages of a search task."""

import json
from pathlib import Path

import torch

from rayrank.core.artifacts import Artifact
from rayrank.models.saved import load_weights
from tests.cluster.conftest import FORKS, command

NAMES, COLOURS = ["cat", "dog", "bird", "fish", "horse", "cow", "bear", "wolf"], ["red", "blue", "green", "white"]
QUICK = ["pretrain.enabled=false", "pointwise.max_steps=12", "pointwise.epochs=1"]


def write_pairs(path: Path) -> Path:
    """Premises about coloured animals; a hypothesis is entailed if it names the same colour."""
    rows = []
    for number, (name, colour) in enumerate((name, colour) for name in NAMES for colour in COLOURS):
        other = COLOURS[(COLOURS.index(colour) + 1) % len(COLOURS)]
        for mark, label, said in (("e", "entailment", colour), ("c", "contradiction", other), ("n", "-", "big")):
            premise, hypothesis = f"The {name} is {colour}.", f"A {name} that is {said}."
            rows.append(
                {"gold_label": label, "sentence1": premise, "sentence2": hypothesis, "promptID": str(number),
                 "pairID": f"{number}{mark}"}
            )  # fmt: skip
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_model_trained_on_inference_starts_the_training_of_a_ranker(
    joining: dict[str, str], tmp_path: Path
) -> None:  # fmt: skip
    pairs, storage = write_pairs(tmp_path / "multinli_train.jsonl"), tmp_path / "storage"
    judged = [*QUICK, "pointwise.pairs=judged", "input.query_type=false"]
    chosen = [part for setting in judged for part in ("--set", setting)]

    until = ("--until", "pointwise")
    given = ("--preset", "demo", "--dataset", f"mnli:{pairs}")
    answer = FORKS.run(command("run_pipeline", storage, *given, *until, *chosen), joining)

    assert answer.returncode == 0, answer.stderr
    assert "32 pairs without a gold label are left out" in answer.stderr
    (first,) = storage.glob("pointwise/*")
    facts = json.loads((first / "manifest.json").read_text())
    assert facts["dev_metric"] == "accuracy"
    assert 0 <= facts["dev"] <= 1
    # Neither an index nor candidates are needed.
    assert {path.name for path in storage.iterdir()} == {"corpus", "pointwise", "logs"}

    # No learning: the second model keeps the weights that it starts from.
    second = [*QUICK, "pointwise.max_steps=1", "pointwise.lr=1e-30", f"encoder.name={first / 'model'}"]
    chosen = [part for setting in second for part in ("--set", setting)]
    answer = FORKS.run(command("run_pipeline", storage, *until, *chosen), joining)

    assert answer.returncode == 0, answer.stderr
    (other,) = set(storage.glob("pointwise/*")) - {first}
    start, end = (load_weights(Artifact(str(storage), "pointwise", path.name)) for path in (first, other))
    assert start.keys() == end.keys()
    for name in start:
        if name.startswith("encoder."):
            assert torch.allclose(start[name], end[name]), name
