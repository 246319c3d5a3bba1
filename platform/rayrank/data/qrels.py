"""The judgments of a split."""

import pyarrow as pa
import pyarrow.compute as pc

from rayrank.core.artifacts import Artifact


def qrels_of(corpus: Artifact, split: str) -> pa.Table:
    """Return the judgments of the queries of a split."""
    judgments = corpus.read_table("judgments.parquet")
    return judgments.filter(pc.equal(judgments["split"], split))
