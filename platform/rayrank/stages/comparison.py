"""Two runs compared query by query: reads them, the queries and the judgments from storage."""

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from rayrank.core import flow
from rayrank.core.artifacts import Artifact, Store, digest_of
from rayrank.core.config import PipelineConfig
from rayrank.core.languages import ANY, UNSPACED
from rayrank.core.run_kinds import CANDIDATES
from rayrank.data.passage_texts import passage_texts
from rayrank.data.qrels import qrels_of
from rayrank.measure.metrics import Measure
from rayrank.measure.places import places
from rayrank.reports.ablation import Procedure
from rayrank.reports.comparison import TOP, Case, ComparisonReport, QueryFacts, case, most_different, overall, tables
from rayrank.runs.reading import measured_split, read_named, run_names
from rayrank.stages.graph import make_all
from rayrank.text.pieces import load_tokenizer
from rayrank.text.ragged import Ragged
from rayrank.text.words import cut_words, word_table


class Side(NamedTuple):
    """One of two compared runs: its title, its name or file, and the configuration that it was made with."""

    title: str
    run: str
    config: PipelineConfig


def prepare(config: PipelineConfig, store: Store, num_cases: int) -> str:
    """Make what is missing of the two runs and of the first stage; return the key of the report's folder."""
    settings = config.evaluate
    named = [name or CANDIDATES for name in (settings.run, settings.baseline, CANDIDATES)]
    nodes = [flow.run_node(name, config) for name in dict.fromkeys(named) if flow.is_run(name, config)]
    make_all([(node, config) for node in nodes], store, parallel=1)
    keys = [flow.key(node, config) for node in nodes]
    return digest_of([*named, *keys, settings.model_dump(mode="json"), config.training.metric, num_cases])


def compare_runs(config: PipelineConfig, store: Store, num_cases: int) -> ComparisonReport:
    """Return all figures of `evaluate.run` against `evaluate.baseline`."""
    settings = config.evaluate
    titles = run_names(settings.run, settings.baseline or CANDIDATES, config)
    sides = [Side(*each, config) for each in zip(titles, (settings.run, settings.baseline), strict=True)]
    return compare_sides(sides[0], sides[1], config, store, num_cases)


def compare_sides(
    side: Side, other: Side, config: PipelineConfig, store: Store, num_cases: int
) -> ComparisonReport:  # fmt: skip
    """Return all figures of one run against another; queries and the first stage are those of `config`."""
    settings, corpus, measure = config.evaluate, store.require("corpus", config), Measure.of(config)
    split = measured_split(settings, corpus)
    qrels = qrels_of(corpus, split)
    runs = [read_named(each.run, split, each.config, store) for each in (side, other)]
    measured = [measure.reported(qrels, run) for run in runs]
    values, baseline = (each.values[measure.name] for each in measured)
    queries = _queries(measured[0].query_ids, corpus, config, store)
    procedure = Procedure.of(settings)
    facts = _facts(queries, _first_ranks(qrels, split, config, store), corpus, config)
    gains, losses = most_different(values, baseline, num_cases)
    cases = _cases([*gains, *losses], queries, (values, baseline), runs, qrels, measure.relevant_from, corpus)
    return ComparisonReport(
        side.title, other.title, flow.run_named(CANDIDATES, config)[0],
        {name: each.num_without_results for name, each in zip((side.title, other.title), measured, strict=True)},
        measure.name, split, procedure,
        overall(values, baseline, procedure), tables(facts, values, baseline, procedure),
        sorted((values - baseline).tolist(), reverse=True), cases[: len(gains)], cases[len(gains) :],
    )  # fmt: skip


def _first_ranks(qrels: pa.Table, split: str, config: PipelineConfig, store: Store) -> NDArray[np.int64] | None:
    """Return the first-stage rank of each query's first relevant passage; None if the first stage orders nothing."""
    _, _, kind = flow.run_named(CANDIDATES, config)
    if not kind.has_scores or not store.require(flow.run_node(CANDIDATES, config), config).names(split):
        return None
    relevant_from = config.dataset.relevant_from
    ranks = places(qrels, read_named(CANDIDATES, split, config, store), relevant_from).first
    relevant = qrels.filter(pc.greater_equal(qrels["relevance"], relevant_from))["query_id"].unique()
    query_ids = pa.array(sorted(qrels["query_id"].unique().to_pylist(), key=str.encode))
    return np.where(pc.is_in(query_ids, value_set=relevant).to_numpy(zero_copy_only=False), ranks, -1)


def _queries(query_ids: list[str], corpus: Artifact, config: PipelineConfig, store: Store) -> pa.Table:
    """Return the measured queries in order, with the type that the model reads where there is one."""
    queries = corpus.read_table("queries.parquet", ["query_id", "text", "query_type", "piece_ids"])
    types = store.find("query_types", config) if config.input.query_type else None
    if types:
        column = types.read_table("query_types.parquet")["query_type"]
        queries = queries.set_column(queries.schema.get_field_index("query_type"), "query_type", column)
    order = pc.index_in(pa.array(query_ids, queries["query_id"].type), queries["query_id"])
    return queries.take(order)


def _facts(
    queries: pa.Table, ranks: NDArray[np.int64] | None, corpus: Artifact, config: PipelineConfig
) -> QueryFacts:  # fmt: skip
    types = pc.fill_null(queries["query_type"], "").to_pylist()
    lengths = [max(1, len(text.split())) for text in queries["text"].to_pylist()]
    # In some languages no spaces separate words, and "none" stands for any language.
    has_spaces = config.index.language not in (*UNSPACED, ANY)
    table = word_table(load_tokenizer(corpus.local("tokenizer")))
    return QueryFacts(
        types if any(types) else None,
        np.array(lengths) if has_spaces else None,
        cut_words(Ragged.from_arrow(queries["piece_ids"]), table),
        ranks,
    )


def _cases(
    chosen: list[int], queries: pa.Table, values: tuple[Any, Any], runs: list[pa.Table], qrels: pa.Table,
    relevant_from: int, corpus: Artifact,
) -> list[Case]:  # fmt: skip
    rows = queries.take(pa.array(chosen, pa.int64())).to_pylist()
    ids = pa.array([row["query_id"] for row in rows], pa.string())
    relevant = _by_query(qrels.filter(pc.greater_equal(qrels["relevance"], relevant_from)), ids, "relevance")
    lists = [_by_query(run, ids, "score") for run in runs]
    shown = [each for found in lists for ids in found.values() for each in ids[:TOP]]
    texts = passage_texts(corpus, [*shown, *(each for ids in relevant.values() for each in ids)])
    return [
        case(
            row, (float(values[0][place]), float(values[1][place])),
            (lists[0].get(row["query_id"], []), lists[1].get(row["query_id"], [])),
            relevant.get(row["query_id"], []), texts,
        )
        for place, row in zip(chosen, rows, strict=True)
    ]  # fmt: skip


def _by_query(rows: pa.Table, query_ids: pa.Array, value: str) -> dict[str, list[str]]:
    """Return the passage ids of some queries, the largest value first; ties are ordered as metrics order them."""
    rows = rows.filter(pc.is_in(rows["query_id"].cast(pa.string()), value_set=query_ids))
    rows = rows.sort_by([(value, "descending"), ("passage_id", "descending")])
    found: dict[str, list[str]] = {}
    for query_id, passage_id in zip(rows["query_id"].to_pylist(), rows["passage_id"].to_pylist(), strict=True):
        found.setdefault(query_id, []).append(passage_id)
    return found
