"""The texts of some passages of a corpus."""

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

from rayrank.core.artifacts import Artifact


def passage_texts(corpus: Artifact, wanted: Iterable[str]) -> dict[str, str]:
    """Return the texts of passages by id; every shard of the corpus is read once, a batch at a time."""
    ids = pa.array(sorted(set(wanted)), pa.string())
    texts: dict[str, str] = {}
    for name in corpus.manifest["shards"] if len(ids) else ():
        for batch in corpus.batches(name, ["passage_id", "text"]):
            found = batch.filter(pc.is_in(batch["passage_id"], value_set=ids))
            texts.update(zip(found["passage_id"].to_pylist(), found["text"].to_pylist(), strict=True))
    return texts
