"""Ranks many queries as POST /search would: the same first stage, model and weight, without HTTP."""

import asyncio
import json
from typing import Any

import pyarrow as pa
import torch

from rayrank.cluster.partitions import FACTS, PartitionWorker
from rayrank.core.artifacts import Artifact
from rayrank.core.records import CANDIDATES
from rayrank.serve.config import ServeConfig
from rayrank.serve.model import ServedModel
from rayrank.serve.order import final_scores
from rayrank.serve.records import Ask
from rayrank.serve.search import RunSearch


class QueryRanker(PartitionWorker):
    """Holds the first stage and the model, and ranks the queries of one part per call."""

    def __init__(self, artifact: Artifact, settings: dict[str, Any], threads: int) -> None:
        config = ServeConfig.model_validate(settings)
        torch.set_num_threads(threads)
        self._artifact, self._depth = artifact, config.search.depth
        self._search, self._model = RunSearch(config.search), ServedModel(config)
        self._loop = asyncio.new_event_loop()
        self._weight = self._loop.run_until_complete(self._model.info()).first_stage_weight

    def make(self, item: dict[str, Any]) -> dict[str, Any]:
        queries: list[tuple[str, str]] = item["queries"]
        warnings: set[str] = set()
        tables = self._loop.run_until_complete(self._rank_all(queries, warnings))
        facts: dict[str, Any] = {
            "num_queries": len(queries),
            "num_without_results": sum(not len(table) for table in tables),
            "warnings": sorted(warnings),
        }
        table = pa.concat_tables(tables).replace_schema_metadata({FACTS: json.dumps(facts).encode()})
        self._artifact.write_table(item["name"], table)
        return facts

    async def _rank_all(self, queries: list[tuple[str, str]], warnings: set[str]) -> list[pa.Table]:
        # One after another: on a CPU the candidates of one query occupy all cores. A GPU waits while Lucene searches.
        return [await self._rank(query_id, text, warnings) for query_id, text in queries]

    async def _rank(self, query_id: str, text: str, warnings: set[str]) -> pa.Table:
        """Return the ranked passages of a query, and add what the model warns of."""
        hits = self._search(text, self._depth)
        if not hits:
            return CANDIDATES.empty_table()
        # An empty entry for each passage: the answer then warns of the fields that the model's fusion reads.
        fields: list[dict[str, float]] = [{} for _ in hits]
        ask = Ask(text, [hit.text for hit in hits], first_stage_scores=[hit.score for hit in hits], fields=fields)
        answer = await self._model.rerank(ask)
        warnings.update(answer.warnings)
        scores = answer.fused or final_scores(answer.logits, ask.first_stage_scores, self._weight)
        columns = {
            "query_id": [query_id] * len(hits),
            "passage_id": [hits[place].passage_id for place in answer.order],
            "rank": range(1, len(hits) + 1),
            "score": [scores[place] for place in answer.order],
        }
        return pa.table(columns, schema=CANDIDATES)
