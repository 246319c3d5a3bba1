"""Whether a new model may replace the live one: it must score as in training, and must not rank worse."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from rayrank.bundle.export import Bundle
from rayrank.bundle.golden import GoldenPair, Parity, parity
from rayrank.bundle.predicted_types import types_for
from rayrank.bundle.text_scorer import score
from rayrank.core.config import EvaluateConfig
from rayrank.core.errors import ConfigError
from rayrank.measure.agreement import kendall_tau, rank_biased_overlap
from rayrank.measure.metrics import MRR_10, Measure
from rayrank.measure.significance import Comparison, Interval, compare, mean_interval
from rayrank.reports.table import difference_text, p_text
from rayrank.scores.fusion import Fusion
from rayrank.serve.live_endpoint import Endpoint, Scores
from rayrank.serve.order import final_scores, rank
from rayrank.serve.records import Ask
from rayrank.serve.replays import Replay, golden_replays
from rayrank.serve.targets import LiveModel, Settings

ALPHA = 0.05
"""Significance level of the test on judged queries."""

MIN_JUDGED = 20
"""Judged queries that the test needs: with fewer, a much worse model may not differ significantly."""


@dataclass(frozen=True)
class Difference:
    """How the rankings of a new model differ from those of the live model on replayed queries."""

    num_queries: int
    tau: float
    overlap: float
    num_judged: int = 0
    live: Interval | None = None
    new: Interval | None = None
    comparison: Comparison | None = None
    metric: str = MRR_10.name

    def finding(self) -> str:
        """Return the figures in one sentence."""
        text = (
            f"{self.num_queries:,} replayed queries: Kendall's tau {self.tau:.3f}, rank-biased overlap "
            f"{self.overlap:.3f} with the live model"
        )
        if not (self.comparison and self.live and self.new):
            return text
        return (
            f"{text}; {self.metric} {self.live.mean:.4f} -> {self.new.mean:.4f} on {self.num_judged:,} judged queries "
            f"({difference_text(self.comparison)}, p {p_text(self.comparison.p_value)})"
        )

    def objection(self) -> str:
        """Return the reason to refuse the new model, or an empty text: a lower metric, or too few judgments to tell."""
        found = self.comparison
        if found is not None and found.difference < 0 and found.p_value < ALPHA:
            return f"{self.metric} falls by {-found.difference:.4f} (p {p_text(found.p_value)})"
        if self.num_judged < MIN_JUDGED:
            return (
                f"it cannot be judged (Kendall's tau with the live model is {self.tau:.3f}), because "
                f"{self.num_judged:,} of {self.num_queries:,} replayed queries have a passage judged relevant and "
                f"{MIN_JUDGED} are needed; name judged queries with --queries"
            )
        return ""


def promoted(live: LiveModel, model: str) -> Settings:
    """Return the settings with the new model, and the live one as `previous`."""
    if Path(live.model) == Path(model):
        raise ConfigError(f"--model {model} is already the live model: name another.")
    settings = {**live.settings, "model": model, "previous": live.model}
    # A name that the user has set stays, and so does one that requests choose a model with; a name that came from the
    # folder is updated.
    if not live.served_as and live.settings.get("name") == Path(live.model).name:
        settings["name"] = Path(model).name
    return settings


def rolled_back(live: LiveModel) -> Settings:
    """Return the settings with the previous model; rolling back twice restores the live model."""
    if not live.settings.get("previous"):
        raise ConfigError(f"--back has no previous model: no promotion has replaced {live.model or 'any model'} yet.")
    return promoted(live, live.settings["previous"])


def as_served(exported: Bundle, long_documents: str | None) -> Bundle:
    """Return the model reading long documents as the endpoint's setting says; without a setting, as in training."""
    inputs = exported.settings.input
    if long_documents in (None, inputs.long_passages):
        return exported
    changed = inputs.model_copy(update={"long_passages": long_documents})
    return replace(exported, settings=exported.settings.model_copy(update={"input": changed}))


def expected_pairs(exported: Bundle, long_documents: str | None) -> Sequence[GoldenPair]:
    """Return the golden pairs with the scores that the endpoint has to give: those of training, or if it reads long
    documents in another way, those that the model gives here in that way."""
    served = as_served(exported, long_documents)
    if served is exported:
        return exported.golden
    logits = [score for each in new_scores(served, golden_replays(exported.golden)) for score in each.logits]
    return [
        pair.model_copy(update={"score": score}) for pair, score in zip(exported.golden, logits, strict=True)
    ]  # fmt: skip


def endpoint_parity(endpoint: Endpoint, pairs: Sequence[GoldenPair]) -> Parity:
    """Compare the endpoint's scores of golden pairs with those that the pairs have."""
    # Golden pairs are sorted by query, so the replays have the same order.
    found = [score for replay in golden_replays(pairs) for score in endpoint.scores(replay).logits]
    return parity(pairs, found)


def new_scores(exported: Bundle, replays: Sequence[Replay]) -> list[Scores]:
    """Return the scores that an endpoint would give with the new model."""
    kinds = types_for(exported, [replay.query for replay in replays], [replay.query_type for replay in replays])
    types = kinds and [kind for replay, kind in zip(replays, kinds, strict=True) for _ in replay.passages]
    queries = [replay.query for replay in replays for _ in replay.passages]
    values = score(exported, queries, [passage for replay in replays for passage in replay.passages], types)
    ends = np.cumsum([len(replay.passages) for replay in replays])
    logits = [part.tolist() for part in np.split(values, ends[:-1])]
    return [_fused(replay, own, exported.fusion) for replay, own in zip(replays, logits, strict=True)]


def _fused(replay: Replay, logits: list[float], fusion: Fusion | None) -> Scores:
    ask = Ask(replay.query, replay.passages, first_stage_scores=replay.first_stage_scores, fields=replay.fields)
    found = rank(ask, logits, 0.0, fusion)
    return Scores(logits, [found.fused[place] for place in range(len(logits))] if found.fused else None)


def served_scores(replays: Sequence[Replay], scores: Sequence[Scores], weight: float) -> list[Sequence[float]]:
    """Return the scores that an endpoint sorts by: fused ones, or else logits, which are interpolated with first-stage
    scores if a replay has any."""
    return [
        own.fused or list(final_scores(own.logits, replay.first_stage_scores, weight).values())
        for replay, own in zip(replays, scores, strict=True)
    ]


def not_fused(which: str, scores: Sequence[Scores]) -> list[str]:
    """Return a sentence if the comparison lacks the fusion of a model that has one."""
    missing = sum(each.fused is None for each in scores)
    sentence = (
        f"the {which} model's fusion was not compared on {missing:,} of {len(scores):,} queries: they lack features"
    )
    return [sentence] if missing else []


def difference(
    replays: Sequence[Replay], live: Sequence[Sequence[float]], new: Sequence[Sequence[float]], config: EvaluateConfig,
    measure: Measure = MRR_10,
) -> Difference:  # fmt: skip
    """Compare the scores of two models on the same replays, by the measure where a passage was judged relevant."""
    pairs = list(zip(live, new, strict=True))
    tau = float(np.mean([kendall_tau(*pair) for pair in pairs]))
    overlap = float(np.mean([rank_biased_overlap(*pair) for pair in pairs]))
    judged = [place for place, replay in enumerate(replays) if max(replay.relevance or [0]) >= measure.relevant_from]
    if not judged:
        return Difference(len(replays), tau, overlap)
    relevance = [replays[place].relevance or () for place in judged]
    qrels = _rows(relevance, "relevance", pa.int32())
    before, after = (
        measure.values(qrels, _rows([scores[place] for place in judged], "score", pa.float32()))
        for scores in (live, new)
    )
    found = compare(after, before, config.test, config.resamples, config.seed)
    means = (mean_interval(values, config.resamples, config.seed) for values in (before, after))
    return Difference(len(replays), tau, overlap, len(judged), next(means), next(means), found, measure.name)


def _rows(lists: Sequence[Sequence[float]], name: str, kind: pa.DataType) -> pa.Table:
    """Return lists as a run or qrels table. Metrics break ties by the largest id first, so earlier passages get larger
    ids."""
    places = [(query, -place) for query, values in enumerate(lists) for place in range(len(values))]
    return pa.table(
        {
            "query_id": [f"{query}" for query, _ in places],
            "passage_id": [f"{place + 10**9:010d}" for _, place in places],
            name: pa.array([value for values in lists for value in values], kind),
        }
    )
