"""The order of a request's passages, before and after they are scored."""

from collections.abc import Sequence

import numpy as np

from rayrank.scores.interpolation import interpolate
from rayrank.serve.records import Ask


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
