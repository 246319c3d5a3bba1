"""Cut words: reads the runs of a model with and without STRM, and finds the passages that share pieces with queries."""

from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray

from rayrank.bundle.piece_attention import PieceAttention, piece_attention
from rayrank.bundle.provenance import model_stage
from rayrank.core import flow
from rayrank.core.artifacts import Artifact, Store, digest_of
from rayrank.core.config import PipelineConfig
from rayrank.core.errors import ConfigError, DatasetError
from rayrank.data.digests import varied
from rayrank.data.ids import PairLookup
from rayrank.data.pair_set import PairSet, relevant_pairs
from rayrank.data.passage_texts import passage_texts
from rayrank.data.qrels import qrels_of
from rayrank.data.rows import by_query, ranks_within_query
from rayrank.measure.metrics import Measure
from rayrank.models.saved import load_reranker
from rayrank.reports.ablation import Procedure
from rayrank.reports.cut_words import (
    WITH,
    WITHOUT,
    Attention,
    Case,
    CutWordsReport,
    Pairs,
    SharedWord,
    clearest,
    query_slices,
    rank_groups,
    shown_columns,
)
from rayrank.runs.reading import measured_split, read_named
from rayrank.scores.calibration import Curve
from rayrank.stages.ablation import full_run
from rayrank.stages.comparison import Side
from rayrank.stages.export_checks import calibrate_on_run
from rayrank.stages.graph import make_all
from rayrank.text.ragged import Ragged, Rows, join
from rayrank.text.shared_pieces import PieceWord, Shared, SharedPieces
from rayrank.text.words import word_table
from rayrank.training.data import Inputs, inputs_of, tokenizer_of

Layers = Literal["last", "mean"]
PAIR = ("query_id", "passage_id")
SIGMOID = Curve(kind="platt")
"""The probability of a score where no calibration can be fitted."""


class Options(NamedTuple):
    """What the report shows."""

    num_cases: int
    num_pictures: int
    top: int
    """A passage up to this rank is ranked high."""
    layers: Layers
    """`last` for the attention of the last layer, `mean` for the mean of all layers."""


def strm_sides(config: PipelineConfig) -> tuple[Side, Side]:
    """Return the run with STRM and the one without: the configuration's own, and the one with `strm.form` switched."""
    run = config.evaluate.run or full_run(config)
    if not (names := flow.pair_rankers(config)):
        raise ConfigError(
            "jobs.cut_words cannot be used: the configuration has no run of kind rerank with model=pointwise or "
            "model=listwise, and STRM changes no other model; add one to runs."
        )
    if run not in names:
        raise ConfigError(f"--run {run} cannot be used: no model ranks it; name one of {', '.join(names)}.")
    if config.strm.representative == "all":
        raise ConfigError(
            "strm.representative=all cannot be used: it is plain attention, as without STRM; set it to last or first."
        )
    if config.input.long_passages == "windows":
        raise ConfigError(
            "jobs.cut_words cannot be used with input.long_passages=windows: it shows one input of each passage; set "
            "input.long_passages=cut."
        )
    own = config.strm.form
    with_strm = varied(config, {"strm.form": "mask"}) if own == "off" else config
    return Side(WITH, run, with_strm), Side(WITHOUT, run, varied(config, {"strm.form": "off"}))


def prepare(config: PipelineConfig, store: Store, options: Options) -> str:
    """Make what is missing of the two runs; return the key of the report's folder."""
    make_all([("corpus", config)], store, parallel=1)
    # What cannot be used is reported before a model is trained.
    SharedPieces.of(tokenizer_of(config, store))
    if (split := measured_split(config.evaluate, store.require("corpus", config))) == "train":
        raise ConfigError(f"--split {split} cannot be used: models rank only held-out splits; name dev or test.")
    nodes = [(flow.run_node(side.run, side.config), side.config) for side in strm_sides(config)]
    make_all(nodes, store, parallel=1)
    keys = [flow.key(*each) for each in nodes]
    return digest_of([*keys, config.evaluate.model_dump(mode="json"), config.training.metric, *options])


def report(config: PipelineConfig, store: Store, options: Options) -> CutWordsReport:
    """Return all figures of the run with STRM and of the same run without."""
    sides, corpus, measure = strm_sides(config), store.require("corpus", config), Measure.of(config)
    split = measured_split(config.evaluate, corpus)
    qrels = qrels_of(corpus, split)
    runs = [read_named(side.run, split, side.config, store) for side in sides]
    values, plain = (measure.reported(qrels, run) for run in runs)
    texts = Texts(config, store)
    has_cut_word = np.array([bool(texts.cut_words(query_id)) for query_id in values.query_ids])
    cut_ids = pa.array(values.query_ids).filter(pa.array(has_cut_word))
    rows = _joined([each.filter(pc.is_in(each["query_id"].cast(pa.string()), value_set=cut_ids)) for each in runs])
    rows = rows.filter(pa.array(~relevant_pairs(qrels, measure.relevant_from).marks(rows)))
    ranks, plain_ranks = (rows[name].to_numpy().astype(np.int64) for name in ("rank", "plain_rank"))
    passages = np.unique(np.asarray(rows["passage_id"].to_pylist(), dtype=np.str_), return_inverse=True)[1]
    pairs = Pairs(by_query(rows)[1], passages, texts.misleading(rows), ranks, plain_ranks)
    lowered, raised = clearest(pairs, options.top, options.num_cases)
    procedure, curves = Procedure.of(config.evaluate), _calibrations(sides, store)
    cases = _cases(rows.take(pa.array([*lowered, *raised], pa.int64())), texts, curves, qrels, corpus)
    first = cases[: options.num_pictures]
    return CutWordsReport(
        flow.title(sides[0].run, config), sides[0].config.strm.form, split, measure.name, options.top,
        "the sigmoid of the score" if SIGMOID in curves else "calibrated on dev", options.layers, procedure,
        int(np.bincount(by_query(runs[0])[1]).max()),
        query_slices(values.values[measure.name], plain.values[measure.name], has_cut_word, procedure),
        rank_groups(pairs, options.top), cases[: len(lowered)], cases[len(lowered) :],
        _attention(first, sides, texts, options.layers, store),
    )  # fmt: skip


class Texts:
    """The queries and passages of a corpus as the models read them, and the cut words of each query."""

    def __init__(self, config: PipelineConfig, store: Store) -> None:
        self.inputs: Inputs = inputs_of(config, store, {})
        self.tokenizer = tokenizer_of(config, store)
        self.finder = SharedPieces.of(self.tokenizer)
        self.rows = PairLookup(self.inputs.data.query_ids, self.inputs.data.passage_ids)
        queries = store.require("corpus", config).read_table("queries.parquet", ["query_id", "text", "piece_ids"])
        self._numbers = {query_id: row for row, query_id in enumerate(queries["query_id"].to_pylist())}
        self._texts = queries["text"]
        self._pieces = Ragged.from_arrow(queries["piece_ids"]).truncate(self.inputs.texts.template.query_length)

    def query(self, query_id: str) -> str:
        """Return the text of a query."""
        return str(self._texts[self._numbers[query_id]])

    def cut_words(self, query_id: str) -> list[PieceWord]:
        """Return the words of a query that have several pieces."""
        return self.finder.cut_words(self._pieces[self._numbers[query_id]])

    def shared(self, query_id: str, passage_id: str) -> list[Shared]:
        """Return the cut words whose pieces a passage shares without having the word."""
        pair = pa.table({"query_id": [query_id], "passage_id": [passage_id]})
        query, passage = (int(rows[0]) for rows in self.rows(pair))
        return self.finder.shared(self.cut_words(query_id), self._read(query, np.array([passage])).flat())

    def misleading(self, pairs: pa.Table) -> NDArray[np.bool_]:
        """Return for each pair whether the passage shares a piece of a cut word that it does not have."""
        query_ids, of_query = by_query(pairs)
        queries, passages = self.rows(pairs)
        found = np.zeros(len(pairs), np.bool_)
        order = np.argsort(of_query, kind="stable")
        for chosen in np.split(order, np.flatnonzero(np.diff(of_query[order])) + 1) if len(order) else ():
            read = self._read(int(queries[chosen[0]]), passages[chosen])
            found[chosen] = self.finder.misleading(self.cut_words(query_ids[of_query[chosen[0]]]), read)
        return found

    def _read(self, query: int, passages: Rows) -> Ragged:
        """Return the pieces of passages that fit into the input beside a query; markers are not counted."""
        texts = self.inputs.texts
        room = texts.template.length - int(texts.prefixes.lengths(np.array([query]))[0]) - 1
        return join(texts.passages.take(passages).truncate(room))


def _joined(runs: list[pa.Table]) -> pa.Table:
    """Return the pairs that both runs have with their ranks and scores; ties are ordered as metrics order them."""
    order = [("query_id", "ascending"), ("score", "descending"), ("passage_id", "descending")]
    with_strm, plain = (
        run.set_column(2, "rank", pa.array(ranks_within_query(by_query(run)[1])))
        for run in (each.sort_by(order) for each in runs)
    )
    plain = plain.rename_columns(["query_id", "passage_id", "plain_rank", "plain_score"])
    return with_strm.join(plain, ["query_id", "passage_id"], join_type="inner").sort_by(order)


def _calibrations(sides: tuple[Side, Side], store: Store) -> list[Curve]:
    """Return both runs' curves from scores to probabilities, fitted on dev as for an exported model."""
    runs = [store.require(flow.run_node(side.run, side.config), side.config) for side in sides]
    try:
        if all(run.names("dev") for run in runs):
            return [calibrate_on_run(run, side.config, store) for run, side in zip(runs, sides, strict=True)]
    except DatasetError:  # dev has too few queries, or candidates of one kind only
        pass
    return [SIGMOID, SIGMOID]


def _cases(rows: pa.Table, texts: Texts, curves: list[Curve], qrels: pa.Table, corpus: Artifact) -> list[Case]:
    passages = passage_texts(corpus, rows["passage_id"].to_pylist())
    probabilities = [
        curve.apply(rows[name].to_numpy()) for curve, name in zip(curves, ("score", "plain_score"), strict=True)
    ]
    judged = PairSet(qrels).marks(rows)
    return [
        Case(
            row["query_id"], texts.query(row["query_id"]), row["passage_id"], passages[row["passage_id"]],
            bool(is_judged), [_named(each) for each in texts.shared(row["query_id"], row["passage_id"])],
            row["rank"], row["plain_rank"], float(probability), float(plain),
        )
        for row, is_judged, probability, plain in zip(rows.to_pylist(), judged, *probabilities, strict=True)
    ]  # fmt: skip


def _named(shared: Shared) -> SharedWord:
    others = dict.fromkeys(other.pieces for other in shared.others)
    return SharedWord(shared.word.text, list(shared.word.pieces), [list(pieces) for pieces in others])


def _attention(
    cases: list[Case], sides: tuple[Side, Side], texts: Texts, layers: Layers, store: Store
) -> list[Attention]:  # fmt: skip
    """Return the attention between the pieces of each case, with both models."""
    pairs = pa.table({name: pa.array([getattr(case, name) for case in cases], pa.string()) for name in PAIR})
    rows = list(zip(*texts.rows(pairs), strict=True))
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    found = []
    for side in sides if cases else ():
        artifact = store.require(model_stage(side.run, side.config), side.config)
        model = load_reranker(artifact, side.config.strm, word_table(texts.tokenizer)).to(device)
        found.append([piece_attention(model, texts.inputs.texts, int(query), int(passage)) for query, passage in rows])
    return [_shown(case, texts, both, layers) for case, *both in zip(cases, *found, strict=True)]


def _shown(case: Case, texts: Texts, both: list[PieceAttention], layers: Layers) -> Attention:
    shared, read = texts.shared(case.query_id, case.passage_id), both[0].passage
    of_query = [place for each in shared for place in _places(each.word)]
    ids = {number for each in shared for number in texts.finder.counting(each.word)}
    in_words = {place for each in shared for other in each.others for place in _places(other)}
    of_passage = [place for place, number in enumerate(read) if place in in_words and number in ids]
    columns = shown_columns(len(read), of_passage)
    weights, plain_weights = (each.mean(layers)[:, columns.start : columns.stop] for each in both)
    query, passage = (
        [str(texts.tokenizer.convert_ids_to_tokens(number)) for number in ids]
        for ids in (both[0].query, read[columns.start : columns.stop])
    )
    return Attention(
        query, passage, of_query,
        [place - columns.start for place in of_passage if place in columns],
        weights.round(6).tolist(), plain_weights.round(6).tolist(), columns.start, len(read),
    )  # fmt: skip


def _places(word: PieceWord) -> range:
    return range(word.first, word.first + len(word.ids))
