"""jobs.demo_encoder makes a folder that presets can name, with the weights of its pre-training."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import BertForPreTraining

from rayrank.core.config import EncoderConfig
from rayrank.models.encoder import load_encoder
from rayrank.text.pieces import load_tokenizer


@pytest.mark.slow
def test_the_folder_has_the_pretrained_weights_as_float16(joining: dict[str, str], tmp_path: Path) -> None:
    output, storage = tmp_path / "encoder", tmp_path / "storage"
    small = ["dataset.demo.subjects=20", "pretrain.max_steps=3", "pretrain.batch_size=4", "resources.train_cpus=1"]
    settings = [part for setting in small for part in ("--set", setting)]
    command = [sys.executable, "-m", "jobs.demo_encoder", "--storage", str(storage), "--output", str(output), *settings]

    subprocess.run(command, env=joining, check=True)

    (trained,) = (storage / "pretrain").glob("*/model/model.safetensors")
    written, made = load_file(output / "model.safetensors"), load_file(trained)
    assert written["bert.embeddings.word_embeddings.weight"].dtype == torch.float16
    base, whole = load_encoder(EncoderConfig(name=str(output)), None).base, BertForPreTraining.from_pretrained(output)
    for name, weight in base.state_dict().items():
        assert torch.equal(weight, made[f"encoder.base.{name}"].half().float()), name
    assert torch.equal(whole.cls.seq_relationship.weight.half(), made["next_sentence.weight"].half())
    assert torch.equal(whole.cls.predictions.bias.half(), made["bias"].half())
    assert len(load_tokenizer(str(output))) == base.config.vocab_size
    # The bias starts at zero, so training has changed it.
    assert written["cls.predictions.bias"].any()
