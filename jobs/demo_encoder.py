"""Make the encoder of the preset demo: a small BERT with a vocabulary of its own, which is stored in the package.

It is pre-trained on generated passages of another seed than the demo's. So it knows the words, and can match a name
with its repetitions, as any pre-trained encoder can; but it has read no passage and no query of the demo. This takes
five minutes on an H200. Each making differs a little: ties between pieces of the vocabulary are broken at random, and
devices round differently. If you replace the encoder in the package, delete artifacts made with the old one: their keys
contain its name only.
"""

import string
from pathlib import Path
from typing import Any

from rayrank.core.artifacts import Artifact, Store
from rayrank.core.config import DemoConfig, PipelineConfig
from rayrank.data.sources.demo import Demo
from rayrank.jobs.entry import Arguments, assignment, parser, run_task

TEXTS = DemoConfig(seed=1, subjects=3000, categories=10)
SETTINGS = [
    *(f"dataset.demo.{name}={value}" for name, value in TEXTS),
    *("pretrain.epochs=64", "pretrain.max_steps=24000", "pretrain.batch_size=64"),
    *("pretrain.length=128", "pretrain.lr=1e-3"),
]
NUM_PIECES = 2000
"""Small enough that invented names and rare words are cut into several pieces, which STRM is made for."""

_OF_BERT = {
    "encoder.base.": "bert.",
    "pooler.": "bert.pooler.",
    "transform.": "cls.predictions.transform.",
    "bias": "cls.predictions.bias",
    "next_sentence.": "cls.seq_relationship.",
}
"""The beginnings of a weight's name in the artifact, and in transformers' BertForPreTraining."""


def write_untrained(folder: Path) -> None:
    """Write a vocabulary learnt from the generated passages, and an encoder with random weights."""
    # Imported late: they load torch, which takes seconds, and a wrong option is reported before.
    import torch
    from tokenizers import BertWordPieceTokenizer
    from transformers import BertConfig, BertForPreTraining, BertTokenizer

    learner, demo = BertWordPieceTokenizer(lowercase=True), Demo(TEXTS)
    texts = (passage.text for part in demo.parts(1 << 20) for passage in demo.passages(part))
    learner.train_from_iterator(texts, vocab_size=NUM_PIECES, show_progress=False)
    pieces = sorted(learner.get_vocab(), key=learner.token_to_id)
    # With every ASCII character, at the beginning of a word and inside it, no English word is unknown.
    single = [*string.ascii_lowercase, *string.digits, *string.punctuation]
    pieces += sorted({*single, *("##" + character for character in single)} - {*pieces})
    tokenizer = BertTokenizer({piece: number for number, piece in enumerate(pieces)}, model_max_length=128)
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    shape = BertConfig(
        vocab_size=len(pieces), hidden_size=128, num_hidden_layers=2, num_attention_heads=4, intermediate_size=512,
        max_position_embeddings=128,
        # The derivative of the exact GELU would take a fifth of a training step on a CPU.
        hidden_act="gelu_pytorch_tanh",
    )  # fmt: skip
    BertForPreTraining(shape).save_pretrained(folder)  # type: ignore[no-untyped-call]


def write_trained(pretrained: Artifact, folder: Path) -> None:
    """Replace the random weights by those of the pre-training, heads included, as float16."""
    from transformers import BertForPreTraining

    from rayrank.models.saved import load_weights

    named = {}
    for name, tensor in load_weights(pretrained).items():
        begin = next(begin for begin in _OF_BERT if name.startswith(begin))
        named[_OF_BERT[begin] + name.removeprefix(begin)] = tensor
    model = BertForPreTraining.from_pretrained(folder)
    # The decoder's weights are the word embeddings, and are not stored a second time.
    unknown = model.load_state_dict(named, strict=False).unexpected_keys
    assert not unknown, unknown
    model.half().save_pretrained(folder)  # type: ignore[no-untyped-call]


def make(folder: Path, config: PipelineConfig, store: Store) -> dict[str, Any]:
    """Pre-train the encoder of a folder in place."""
    from rayrank.stages.make import make as make_stage

    make_stage("corpus", config, store)
    pretrained = make_stage("pretrain", config, store)
    write_trained(pretrained, folder)
    return {"findings": [f"encoder: {folder}, dev {pretrained.manifest['dev']:.4f} (minus the loss)"]}


def main(arguments: Arguments) -> None:
    """Write the untrained encoder, which the configuration names, and then train it."""
    folder = Path(arguments.output).absolute()
    write_untrained(folder)
    names = [assignment(key, str(folder)) for key in ("text.tokenizer", "encoder.name")]
    arguments.set = [*SETTINGS, *names, "encoder.layers=", *arguments.set]
    run_task(arguments, lambda config, store: make(folder, config, store))


if __name__ == "__main__":
    options = parser(__doc__)
    options.add_argument("--output", required=True, metavar="DIR", help="the folder of the encoder; it is overwritten")
    main(options.parse_args())
