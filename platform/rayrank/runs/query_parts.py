"""The queries that first stages search for, and the result files they are divided into."""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rayrank.core.artifacts import Artifact
from rayrank.core.records import UNJUDGED


def searched_queries(corpus: Artifact) -> tuple[pa.Table, int]:
    """Return the queries that first stages search for (query_id, split, text), and the number left out.

    Left out are training queries without a judgment, and queries of no split.
    """
    queries = corpus.read_table("queries.parquet", ["query_id", "split", "text"])
    judged = corpus.read_table("judgments.parquet", ["query_id"])["query_id"]
    held_out = pc.invert(pc.is_in(queries["split"], value_set=pa.array(["train", UNJUDGED])))
    useful = queries.filter(pc.or_(held_out, pc.is_in(queries["query_id"], value_set=judged.combine_chunks())))
    return useful, len(queries) - len(useful)


def query_parts(corpus: Artifact, size: int) -> tuple[list[dict[str, Any]], int]:
    """Return what each result file will hold, and how many queries are left out.

    A result file has a name, a split and up to `size` queries.
    """
    queries, skipped = searched_queries(corpus)
    items: list[dict[str, Any]] = []
    for split in sorted(pc.unique(queries["split"]).to_pylist()):
        rows = queries.filter(pc.equal(queries["split"], split))
        for number, start in enumerate(range(0, len(rows), size)):
            part = rows.slice(start, size)
            items.append(
                {
                    "name": f"{split}/part-{number:05d}.parquet",
                    "split": split,
                    "query_ids": part["query_id"].to_pylist(),
                    "texts": part["text"].to_pylist(),
                }
            )
    return items, skipped
