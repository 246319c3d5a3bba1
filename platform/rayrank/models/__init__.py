"""Encoders, their attention, their heads, and how they score."""

from importlib import import_module
from typing import Any


def _import_assisted_generation_without_sklearn() -> None:
    """Import the one module of transformers that loads scikit-learn (1.6 s a process), without scikit-learn.

    All models of transformers import this module, which is for assisted generation; no model of ours uses it.
    """
    utils: Any = import_module("transformers.utils")
    available = utils.is_sklearn_available
    utils.is_sklearn_available = lambda: False
    try:
        import_module("transformers.generation.candidate_generator")
    finally:
        utils.is_sklearn_available = available


_import_assisted_generation_without_sklearn()
