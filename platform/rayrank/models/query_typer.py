"""Types of queries by a trained classifier: questions in, the names of their types out."""

import shutil
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from rayrank.core.artifacts import MANIFEST, Artifact
from rayrank.core.config import PipelineConfig, StrmConfig
from rayrank.models.batches import PaddedBatch, pad
from rayrank.models.reranker import Reranker
from rayrank.models.saved import SHAPE, WEIGHTS, load_reranker
from rayrank.text.pieces import PieceEncoder, load_tokenizer
from rayrank.text.ragged import Ragged, Rows, join
from rayrank.text.template import Sequences, Template

NAMES = "types.json"
"""The file with the names of the types, in the order of the classifier's outputs."""

AT_ONCE = 256
"""Questions of similar length in one batch; they are short."""


def batch_of(questions: Ragged, rows: Rows, pad_id: int) -> PaddedBatch:
    """Return `[CLS] question [SEP]` inputs as a padded batch."""
    return pad(Sequences(join(questions.take(rows)), questions.lengths(rows)), pad_id)


@torch.inference_mode()
def most_likely(model: Reranker, questions: Ragged, rows: Rows, pad_id: int) -> NDArray[np.int64]:
    """Return the number of each row's most likely type."""
    was_training = model.training
    model.eval()
    device = next(model.parameters()).device
    order = np.argsort(questions.lengths(rows), kind="stable")
    found = np.empty(len(rows), np.int64)
    for start in range(0, len(rows), AT_ONCE):
        chosen = order[start : start + AT_ONCE]
        found[chosen] = model(batch_of(questions, rows[chosen], pad_id).to(device)).argmax(1).cpu().numpy()
    model.train(was_training)
    return found


class Typer:
    """A classifier with its tokenizer and the names of its types."""

    def __init__(self, model: Reranker, types: Sequence[str], encode: PieceEncoder, template: Template) -> None:
        """Take a model with one output a type, in the order of `types`."""
        self.types = list(types)
        self._model, self._encode, self._template = model, encode, template

    def __call__(self, texts: Sequence[str]) -> list[str]:
        """Return the type of every query."""
        pieces = Ragged.from_arrow(pa.chunked_array([self._encode(texts)]))
        questions = self._template.prefixes(pieces)
        rows = most_likely(self._model, questions, np.arange(len(texts)), self._template.pad_id)
        return [self.types[row] for row in rows]


def load_typer(artifact: Artifact, device: str | None = None) -> Typer:
    """Return a trained classifier from what its artifact alone holds, on a GPU if this machine has one."""
    # Plain attention: the word table is not asked for.
    model = load_reranker(artifact, PipelineConfig(strm=StrmConfig(form="off")), np.empty(0, np.int8))
    tokenizer = load_tokenizer(artifact.local("tokenizer"))
    query_pieces = artifact.manifest["config"]["text"]["query_pieces"]
    encode = PieceEncoder(tokenizer.backend_tokenizer.to_str(), query_pieces)
    template = Template.of_queries(tokenizer, query_pieces)
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    return Typer(model.to(device), artifact.read_json(NAMES), encode, template)


def copy_typer(artifact: Artifact, folder: str) -> None:
    """Put what `load_typer` needs of a classifier, and nothing of where it was trained, under another root."""
    copied = Artifact(folder, artifact.stage, artifact.key)
    shape = artifact.read_json(SHAPE)
    shape.pop("_name_or_path", None)
    copied.write_json(SHAPE, shape)
    copied.write_json(NAMES, artifact.read_json(NAMES))
    with artifact.open(WEIGHTS) as weights, copied.create(WEIGHTS) as stream:
        shutil.copyfileobj(weights, stream)
    copied.put_folder(artifact.local("tokenizer"), "tokenizer")
    text = {"query_pieces": artifact.manifest["config"]["text"]["query_pieces"]}
    copied.write_json(MANIFEST, {"config": {"text": text}})
