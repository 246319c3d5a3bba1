"""LambdaRank with LightGBM's trees: an optional package, imported only where such a fusion is asked for."""

from functools import lru_cache
from typing import Any

import numpy as np

from rayrank.core.errors import ConfigError
from rayrank.scores.union import Ints, Scores, Values

NUM_TREES = 100
SETTINGS = {
    "objective": "lambdarank",
    # Small trees and large leaves: a dev split has some hundred queries, of which each half is used alone.
    "num_leaves": 15,
    "min_data_in_leaf": 50,
    "learning_rate": 0.05,
    "lambdarank_truncation_level": 30,
    "num_threads": 1,
    "deterministic": True,
    "seed": 13,
    "verbosity": -1,
}
HIGHEST_GRADE = 30
"""LightGBM's gains are 2 to the power of the grade, and it knows no higher grade."""


def trained_trees(values: Values, of_query: Ints, gains: Values) -> str:
    """Return the text of a model trained on rows, of which those of a query lie together."""
    lightgbm = _lightgbm()
    grades = np.minimum(gains, HIGHEST_GRADE).astype(np.int64)
    data = lightgbm.Dataset(values, grades, group=np.bincount(of_query))
    return str(lightgbm.train(SETTINGS, data, NUM_TREES).model_to_string())


def tree_scores(trees: str, values: Values) -> Scores:
    """Return a model's score of each row."""
    found: Scores = _opened(trees).predict(values, num_threads=1).astype(np.float32)
    return found


@lru_cache(maxsize=4)
def _opened(trees: str) -> Any:
    return _lightgbm().Booster(model_str=trees)


def _lightgbm() -> Any:
    try:
        import lightgbm
    except ImportError:
        raise ConfigError(
            "form=lambdarank of a run of kind fuse needs LightGBM, which is not installed: install it with pip install "
            "'rayrank[lambdarank]', or set form=linear."
        ) from None
    return lightgbm
