"""Ablation (Table 1 of the paper): how much each part of DR-BERT contributes; rows share artifacts where they can."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import pyarrow.compute as pc

from rayrank.core import flow
from rayrank.core.artifacts import Artifact, Store, digest_of
from rayrank.core.config import PipelineConfig
from rayrank.core.errors import ConfigError, DatasetError
from rayrank.core.nodes import stage_of
from rayrank.core.run_kinds import CANDIDATES
from rayrank.data.digests import varied
from rayrank.measure.metrics import PerQuery
from rayrank.reports.ablation import Ablation, Procedure, Variant, ablate
from rayrank.reports.comparison import ComparisonReport
from rayrank.stages.comparison import Side, compare_sides
from rayrank.stages.graph import Wanted, make_all, make_possible
from rayrank.text.pieces import load_tokenizer
from rayrank.text.ragged import Ragged
from rayrank.text.words import multi_piece_queries, word_table

TRAINED = ("train_dense", "train_deepct", "train_doc2query", "pretrain", "pointwise", "listwise", "sdnet")
"""The stages that count towards a row's device seconds, as does scoring the training candidates for the noise filter.
Other stages, and scoring held-out splits, do not count."""

NO_NOISE_FILTER = {"noise.threshold": 1.0, "noise.margin": None, "noise.relabel": None}

BERT = {"pretrain.enabled": False, "input.query_type": False, "input.markers": 0, "strm.form": "off"}
"""The settings that make the pointwise model a plain BERT re-ranker, monoBERT."""

MONOBERT, MARKEDBERT = "monoBERT", "MarkedBERT"
FIRST_STAGES = ("bm25", "deepct", "hybrid")
"""The first stages in the table of rankers, besides the one whose candidates are re-ranked."""


class RowSpec(NamedTuple):
    """A row of the table: the settings it changes in the full model's configuration, and the run it measures."""

    name: str
    changes: Mapping[str, Any]
    run: str


def full_run(config: PipelineConfig) -> str:
    """Return the run of the full model: the last one that a trained model ranks, SDNet only if there is no other."""
    if not (names := flow.pair_rankers(config) or flow.rankers(config)):
        raise ConfigError("The configuration has no run of kind rerank, so there is no model to ablate.")
    return names[-1]


def table_one(config: PipelineConfig) -> list[RowSpec]:
    """Return the rows of the paper's Table 1, then one for every other run; each measures something else."""
    first, full = config.candidates.first_stage, full_run(config)
    rows = [RowSpec(flow.title(first, config), {}, first), *_model_rows(config, full)]
    measured = {row.run for row in rows}
    for name in flow.used_runs(config):
        if name not in measured:
            rows.append(RowSpec(_combined_title(name, config, full), {}, name))
    last = next(row for row in rows if row.name == flow.title(full, config))
    # Of rows that measure the same, the full model is kept, or else the first.
    kept = {flow.key("evaluate", configured(config, row, 0)): row.name for row in [*reversed(rows), last]}
    return [row for row in rows if row.name in kept.values()]


def _model_rows(config: PipelineConfig, full: str) -> list[RowSpec]:
    """Return the rows that leave out one part each; phases can be left out of a listwise model only."""
    settings: Any = config.runs
    plain = [name for name in flow.rankers(config) if settings[name].model == "pointwise"]
    rows = [
        *(RowSpec("+ BERT", BERT, name) for name in plain[:1]),
        RowSpec(flow.title(full, config), {}, full),
        RowSpec("- pre-training", {"pretrain.enabled": False}, full),
        RowSpec("- query type", {"input.query_type": False}, full),
        RowSpec("- STRM", {"strm.form": "off"}, full),
    ]
    if settings[full].model not in ("listwise", "soup"):
        return rows
    # In the paper's row without the pointwise phase, the listwise phase is longer by the pointwise epochs.
    longer = {"listwise.start": "encoder", "listwise.epochs": config.listwise.epochs + config.pointwise.epochs}
    # Without the filter nothing reads the scores of a round, unless negatives are drawn by their ranks.
    unfiltered = NO_NOISE_FILTER if config.listwise.negative_ranks else {**NO_NOISE_FILTER, "listwise.rounds": 1}
    phases = [
        RowSpec("- pointwise", longer if config.listwise.start != "encoder" else {}, full),
        RowSpec("- noise reduction", unfiltered, full),
        *(RowSpec("- listwise", {}, name) for name in plain[:1]),
    ]
    return [*rows[:-2], phases[0], rows[-2], *phases[1:], rows[-1]]


def rankers_table(config: PipelineConfig) -> list[RowSpec]:
    """Return first stages, and then the papers' rankers over the same candidates."""
    settings: Any = config.runs
    full, first = full_run(config), config.candidates.first_stage
    plain = [name for name in flow.rankers(config) if settings[name].model == "pointwise"]
    if not plain:
        raise ConfigError("The configuration has no run of kind rerank with model=pointwise, so it has no monoBERT.")
    stages = dict.fromkeys(name for name in (*FIRST_STAGES, first) if name in config.runs)
    sdnet = {"runs.sdnet": {"kind": "rerank", "model": "sdnet"}}
    fused = {**sdnet, "runs.sdnet_fused": {"kind": "interpolate", "of": ["sdnet", CANDIDATES]}}
    # A query of full length has at most so many terms.
    markers = {"input.markers": config.input.markers or config.input.query_length}
    rows = [
        *(RowSpec(flow.title(name, config), {}, name) for name in stages),
        RowSpec(MONOBERT, BERT, plain[0]),
        RowSpec(MARKEDBERT, {**BERT, **markers}, plain[0]),
        RowSpec("SDNet", sdnet, "sdnet"),
    ]
    if flow.run_named(first, config)[2].has_scores:
        rows.append(RowSpec(f"SDNet + {flow.title(first, config)} score", fused, "sdnet_fused"))
    if flow.title(full, config) not in [row.name for row in rows]:
        rows.append(RowSpec(flow.title(full, config), {}, full))
    return rows


def _combined_title(name: str, config: PipelineConfig, full: str) -> str:
    """Return the title of a run's row; an interpolation of the full model is titled by the run that it adds."""
    _, settings, kind = flow.run_named(name, config)
    read = kind.reads(settings)
    if settings.kind == "interpolate" and read[0] == full and not settings.title:
        return f"+ {', '.join(flow.title(each, config) for each in read[1:])} score"
    return flow.title(name, config)


def configured(config: PipelineConfig, row: RowSpec, seed: int) -> PipelineConfig:
    """Return the configuration of a row with one seed, which measures the row's run."""
    run = {"evaluate.run": row.run, "evaluate.baseline": ""}
    return varied(config, {**row.changes, **run, "training.seed": seed})


Configure = Callable[[PipelineConfig, RowSpec, int], PipelineConfig]
"""Takes the full configuration, a row and a seed; returns the configuration that measures the row."""


def run(
    config: PipelineConfig, store: Store, rows: Sequence[RowSpec], seeds: Sequence[int], parallel: int,
    reference: str = "", configure: Configure = configured,
) -> Ablation:  # fmt: skip
    """Make all rows' artifacts, then measure each on every held-out split against one row, or else the full model.

    A row whose training cannot succeed is left out, and the table says why.
    """
    reference = reference or flow.title(full_run(config), config)
    names = [row.name for row in rows]
    if repeated := next((name for name in names if names.count(name) > 1), ""):
        raise ConfigError(f"Two rows are called {repeated!r}: give one of them another name.")
    configs = {row.name: [configure(config, row, seed) for seed in seeds] for row in rows}
    make_all([("corpus", config)], store, parallel)
    judged = store.require("corpus", config).manifest["splits"]
    splits = [name for name in ("dev", "test") if judged.get(name, {}).get("num_judgments")]
    if not splits:
        raise DatasetError(f"The dataset {config.dataset.source} has no judged dev or test queries to measure rows on.")
    every = [seeded for row in rows for seeded in configs[row.name]]
    wanted = [("evaluate", for_split(split, seeded)) for seeded in every for split in splits]
    failed = make_possible(wanted, store, parallel)
    reasons: dict[str, str] = {}
    for row in rows:
        places = [Wanted("evaluate", for_split(split, each)).place for each in configs[row.name] for split in splits]
        if errors := [failed[place] for place in places if place in failed]:
            if row.name == reference:
                raise errors[0]
            reasons[row.name] = str(errors[0])
    variants = [
        Variant(
            row.name,
            {split: [per_query(for_split(split, seeded), store) for seeded in configs[row.name]] for split in splits},
            device_seconds(configs[row.name], store),
            pairs_per_second(configs[row.name], store),
        )
        for row in rows
        if row.name not in reasons
    ]
    table = ablate(variants, reference, _slices(config, store), Procedure.of(config.evaluate))
    return replace(table, failed=reasons)


def compare_rows(
    config: PipelineConfig, store: Store, rows: Sequence[RowSpec], seed: int, num_cases: int
) -> ComparisonReport:
    """Return all figures of the first of two rows against the second, with one seed, on test or else dev."""
    sides = [Side(row.name, row.run, configured(config, row, seed)) for row in rows]
    # The rows may have first stages of their own; that of the full model, by whose ranks queries are grouped, may be
    # missing.
    make_all([(flow.run_node(CANDIDATES, config), config)], store, parallel=1)
    return compare_sides(sides[0], sides[1], config, store, num_cases)


def digest(
    config: PipelineConfig, rows: Sequence[RowSpec], seeds: Sequence[int], reference: str = "",
    configure: Configure = configured,
) -> str:  # fmt: skip
    """Return the name of the table's folder: a digest of the rows' names, of the keys of their evaluations, and of the
    row that the others are compared with."""
    keys = [[row.name, [flow.key("evaluate", configure(config, row, seed)) for seed in seeds]] for row in rows]
    return digest_of([keys, reference])


def for_split(split: str, config: PipelineConfig) -> PipelineConfig:
    """Return the configuration of an evaluation on another split."""
    return config.model_copy(update={"evaluate": config.evaluate.model_copy(update={"split": split})})


def per_query(config: PipelineConfig, store: Store) -> PerQuery:
    """Return the metrics of an evaluation, query by query."""
    return read_per_query(store.require("evaluate", config))


def read_per_query(evaluation: Artifact) -> PerQuery:
    """Return the metrics of an evaluation that exists, query by query."""
    table = evaluation.read_table("per_query.parquet")
    values = {name: table[name].to_numpy() for name in table.column_names if name != "query_id"}
    return PerQuery(table["query_id"].to_pylist(), values, 0)


def device_seconds(configs: Sequence[PipelineConfig], store: Store, last: str = "evaluate") -> float:
    """Return the device seconds of training all that a node needs from scratch, as a mean over seeds.

    Artifacts that rows share count in each row.
    """
    total = 0.0
    for config in configs:
        for node in flow.plan(last, config):
            if stage_of(node, config)[0] in TRAINED or node.endswith(flow.TRAIN):
                total += seconds_on_devices(store.require(node, config).manifest)
    return total / len(configs)


def seconds_on_devices(facts: dict[str, Any]) -> float:
    """Return the device seconds that an artifact's manifest names; a fraction of a GPU counts as that fraction."""
    seconds = facts.get("train_seconds", 0) * facts.get("num_workers", 1) + facts.get("score_seconds", 0)
    return float(seconds * (facts.get("gpus") or 1))


def pairs_per_second(configs: Sequence[PipelineConfig], store: Store, last: str = "evaluate") -> float | None:
    """Return how many candidates a second of a device scores with all models that a node needs, as a mean over seeds.

    None without a model. A passage of several windows counts once.
    """
    rates = []
    for config in configs:
        seconds = 0.0
        for node in flow.plan(last, config):
            if not node.startswith(flow.RUN) or node.endswith(flow.TRAIN):
                continue
            facts = store.require(node, config).manifest
            if facts.get("score_seconds"):
                seconds += facts["score_seconds"] * (facts.get("gpus") or 1) / facts["num_candidates"]
        if seconds:
            rates.append(1 / seconds)
    return sum(rates) / len(rates) if rates else None


def _slices(config: PipelineConfig, store: Store) -> dict[str, set[str]]:
    """Return two sets of queries: with a word of several pieces, where STRM acts, and without."""
    corpus = store.require("corpus", config)
    queries = corpus.read_table("queries.parquet", ["query_id", "piece_ids"]).combine_chunks()
    table = word_table(load_tokenizer(corpus.local("tokenizer")))
    several = multi_piece_queries(Ragged.from_arrow(queries["piece_ids"]), table)
    return {
        "multi-piece": set(queries["query_id"].filter(several).to_pylist()),
        "whole words": set(queries["query_id"].filter(pc.invert(several)).to_pylist()),
    }
