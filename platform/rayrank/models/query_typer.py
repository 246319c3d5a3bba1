"""The trained classifier that predicts the types of queries."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from rayrank.core.artifacts import MANIFEST, Artifact
from rayrank.core.config import StrmConfig
from rayrank.models.batches import PaddedBatch, pad
from rayrank.models.reranker import Reranker
from rayrank.models.saved import KIND, SHAPE, WEIGHTS, load_reranker
from rayrank.text.pieces import PieceEncoder, load_tokenizer
from rayrank.text.ragged import Ragged, Rows, join
from rayrank.text.template import Sequences, Template

NAMES = "types.json"
"""The file with the names of the types in the order of the classifier's outputs."""

BATCH_SIZE = 256
"""Questions per batch, of similar length; questions are short."""


def batch_of(questions: Ragged, rows: Rows, pad_id: int) -> PaddedBatch:
    """Return `[CLS] question [SEP]` inputs as a padded batch."""
    return pad(Sequences(join(questions.take(rows)), questions.lengths(rows)), pad_id)


@torch.inference_mode()
def most_likely(model: Reranker, questions: Ragged, rows: Rows, pad_id: int) -> NDArray[np.int64]:
    """Return the index of the most likely type of each row of `questions`."""
    was_training = model.training
    model.eval()
    device = next(model.parameters()).device
    order = np.argsort(questions.lengths(rows), kind="stable")
    found = np.empty(len(rows), np.int64)
    for start in range(0, len(rows), BATCH_SIZE):
        chosen = order[start : start + BATCH_SIZE]
        found[chosen] = model(batch_of(questions, rows[chosen], pad_id).to(device)).argmax(1).cpu().numpy()
    model.train(was_training)
    return found


@dataclass(frozen=True)
class QueryTyper:
    """A trained classifier with its tokenizer and the names of its types."""

    artifact: Artifact
    """The stored files of the classifier."""
    model: Reranker
    """A model with one output per type, in the order of `types`."""
    types: list[str]
    encode: PieceEncoder
    template: Template

    def __call__(self, texts: Sequence[str]) -> list[str]:
        """Return the type of every query."""
        pieces = Ragged.from_arrow(pa.chunked_array([self.encode(texts)]))
        questions = self.template.prefixes(pieces)
        rows = most_likely(self.model, questions, np.arange(len(texts)), self.template.pad_id)
        return [self.types[row] for row in rows]

    def copy_to(self, root: str) -> None:
        """Copy the files that `load_typer` reads to another root, without paths of the machine that trained it."""
        source, copied = self.artifact, Artifact(root, self.artifact.stage, self.artifact.key)
        shape = source.read_json(SHAPE)
        shape.pop("_name_or_path", None)
        copied.write_json(SHAPE, shape)
        for name in (KIND, NAMES):
            copied.write_json(name, source.read_json(name))
        with source.open(WEIGHTS) as weights, copied.create(WEIGHTS) as stream:
            shutil.copyfileobj(weights, stream)
        copied.put_folder(source.local("tokenizer"), "tokenizer")
        text = {"query_pieces": source.manifest["config"]["text"]["query_pieces"]}
        copied.write_json(MANIFEST, {"config": {"text": text}})


def load_typer(artifact: Artifact, device: str | None = None) -> QueryTyper:
    """Return the classifier of an artifact, on `device` or else on a GPU if this machine has one."""
    # The word table is empty: it is only read for STRM.
    model = load_reranker(artifact, StrmConfig(form="off"), np.empty(0, np.int8))
    tokenizer = load_tokenizer(artifact.local("tokenizer"))
    query_pieces = artifact.manifest["config"]["text"]["query_pieces"]
    encode = PieceEncoder(tokenizer.backend_tokenizer.to_str(), query_pieces)
    template = Template.of_one_text(tokenizer, query_pieces)
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    types = list(artifact.read_json(NAMES))
    return QueryTyper(artifact, model.to(device), types, encode, template)
