"""The order of a request's passages, before and after they are scored."""

from collections.abc import Sequence

import numpy as np

from rayrank.scores.interpolation import interpolate
from serve.records import Ask


def ranked(logits: Sequence[float | None], first_stage: Sequence[float] | None, weight: float) -> list[int]:
    """Return the positions of the scored passages, best first; passages with equal scores keep their order.

    `weight` is the share of the first stage's scores in the interpolation with the logits.
    """
    scored = [place for place, logit in enumerate(logits) if logit is not None]
    values = np.array([logits[place] for place in scored], np.float64)
    if first_stage is not None and weight > 0 and scored:
        values = interpolate(values, np.array([first_stage[place] for place in scored], np.float64), weight)
    return [scored[row] for row in np.argsort(-values, kind="stable")]


def first_stage_order(ask: Ask) -> list[int]:
    """Return the positions of the passages, best first by first-stage score; in the client's order without scores."""
    places = range(len(ask.passages))
    scores = ask.first_stage_scores
    return list(places) if scores is None else sorted(places, key=lambda place: -scores[place])
