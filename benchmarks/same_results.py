"""Compares the artifacts of two storages: data bit by bit, trained models by their dev metric and their weights."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import safetensors.torch
import torch

from rayrank.core.artifacts import MANIFEST, Artifact

WEIGHTS = "model/model.safetensors"
FILES = ("*.trec", "*.tsv")
"""Files of an artifact that are the same byte for byte. Lucene's have random ids: its index is compared by its runs."""


@dataclass
class Same:
    """How many artifacts were compared, and which differ."""

    data: int = 0
    models: int = 0
    other_data: list[str] = field(default_factory=list)
    """Also artifacts that only one of the storages has."""
    other_metric: list[str] = field(default_factory=list)
    other_weights: list[str] = field(default_factory=list)

    def is_whole(self) -> bool:
        """Return whether the data are the same bit by bit, and the models by their metric."""
        return not self.other_data and not self.other_metric

    def about_data(self) -> str:
        """Return a cell of the table."""
        return f"{len(self.other_data)} DIFFER" if self.other_data else f"{self.data} equal" if self.data else "-"

    def about_models(self) -> str:
        """Return a cell of the table."""
        if self.other_metric:
            return f"{len(self.other_metric)} OTHER METRIC"
        weights = "other weights" if self.other_weights else "equal bits"
        return f"{self.models} equal, {weights}" if self.models else "-"


def compared(first: Path, second: Path, made: Sequence[Path], made_again: Sequence[Path]) -> Same:
    """Compare two storages; `made` and `made_again` are the artifacts in them, as STAGE/KEY."""
    same = Same(other_data=[str(place) for place in set(made) ^ set(made_again)])
    for place in sorted(set(made) & set(made_again)):
        one, other = first / place, second / place
        if (one / WEIGHTS).exists():
            same.models += 1
            if _dev(one) != _dev(other):
                same.other_metric.append(str(place))
            if not _same_weights(one / WEIGHTS, other / WEIGHTS):
                same.other_weights.append(str(place))
        else:
            same.data += 1
            if not _same_data(one, other):
                same.other_data.append(str(place))
    return same


def _dev(place: Path) -> Any:
    return Artifact(str(place.parents[1]), place.parent.name, place.name).manifest["dev"]


def _same_weights(one: Path, other: Path) -> bool:
    weights, others = safetensors.torch.load_file(one), safetensors.torch.load_file(other)
    return weights.keys() == others.keys() and all(torch.equal(each, others[name]) for name, each in weights.items())


def _same_data(one: Path, other: Path) -> bool:
    names = [{str(file.relative_to(place)) for file in _files(place)} for place in (one, other)]
    return names[0] == names[1] and all(_content(one / name) == _content(other / name) for name in names[0])


def _files(place: Path) -> list[Path]:
    assert (place / MANIFEST).exists()
    return [file for pattern in ("*.parquet", *FILES) for file in place.rglob(pattern)]


def _content(file: Path) -> bytes | pa.Table:
    """Return what is compared: of a Parquet file the rows, because its footer has durations."""
    if file.suffix != ".parquet":
        return file.read_bytes()
    return pq.read_table(file).replace_schema_metadata(None)
