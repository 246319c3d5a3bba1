"""The order of a request's passages, before and after they are scored."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from rayrank.scores.fusion import Fusion, fused_scores
from rayrank.scores.interpolation import interpolate
from rayrank.serve.records import Ask


class Ranking(NamedTuple):
    """The positions of the scored passages, best first; their fused scores, if they were fused; and warnings."""

    order: list[int]
    fused: Mapping[int, float]
    warnings: list[str]


def rank(ask: Ask, logits: Sequence[float | None], weight: float, fusion: Fusion | None) -> Ranking:
    """Rank the scored passages by fused scores if, for each feature of the fusion, at least one passage has a value.

    Otherwise, and if the request has a weight for its first-stage scores, passages are ranked as without a fusion.
    """
    plain = Ranking(ranked(logits, ask.first_stage_scores, weight), {}, [])
    if fusion is None or not fusion.model or ask.first_stage_weight is not None or not plain.order:
        return plain
    scored = [place for place, logit in enumerate(logits) if logit is not None]
    given = {fusion.model: np.array([logits[place] for place in scored], np.float64)}
    for name in [feature.name for feature in fusion.features if feature.name != fusion.model]:
        given[name] = np.array([_value(ask, place, name, fusion.first_stage) for place in scored])
    if missing := [name for name, values in given.items() if np.isnan(values).all()]:
        # A request of an API without fields can bring none, so it is not warned.
        return plain._replace(warnings=[] if ask.fields is None else [_not_fused(missing, fusion)])
    fused = dict(zip(scored, fused_scores(fusion, given).tolist(), strict=True))
    return Ranking(sorted(fused, key=lambda place: -fused[place]), fused, [])


def _value(ask: Ask, place: int, name: str, first_stage: str) -> float:
    """Return the value of a feature of a passage, NaN if the request does not have it."""
    value = ask.fields[place].get(name) if ask.fields else None
    if value is None and name == first_stage and ask.first_stage_scores is not None:
        value = ask.first_stage_scores[place]
    return np.nan if value is None else value


def _not_fused(missing: Sequence[str], fusion: Fusion) -> str:
    """Return a warning that names what documents have to bring."""
    ways = [
        f"{name} (fields.{name} or first_stage_scores)" if name == fusion.first_stage else f"fields.{name}"
        for name in missing
    ]
    return f"fusion: no document has {', '.join(ways)}, so documents are ranked without the model's fusion."


def ranked(logits: Sequence[float | None], first_stage: Sequence[float] | None, weight: float) -> list[int]:
    """Return the positions of the scored passages, best first; passages with equal scores keep their order."""
    scores = final_scores(logits, first_stage, weight)
    return sorted(scores, key=lambda place: -scores[place])


def final_scores(
    logits: Sequence[float | None], first_stage: Sequence[float] | None, weight: float
) -> dict[int, float]:  # fmt: skip
    """Return the scores that decide the order, by position: logits, interpolated with the first stage's scores.

    `weight` is the share of the first stage's scores. Passages without a logit are left out.
    """
    scored = [place for place, logit in enumerate(logits) if logit is not None]
    values = np.array([logits[place] for place in scored], np.float64)
    if first_stage is not None and weight > 0 and scored:
        values = interpolate(values, np.array([first_stage[place] for place in scored], np.float64), weight)
    return dict(zip(scored, values.tolist(), strict=True))


def first_stage_order(ask: Ask) -> list[int]:
    """Return the positions of the passages, best first by first-stage score; in the client's order without scores."""
    places = range(len(ask.passages))
    scores = ask.first_stage_scores
    return list(places) if scores is None else sorted(places, key=lambda place: -scores[place])
