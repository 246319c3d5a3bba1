"""Encoders, their attention, their heads, and how they score."""

from importlib import import_module
from typing import Any


def _import_assisted_generation_without_sklearn() -> None:
    """Import a module that all models of transformers import, which would import scikit-learn, without scikit-learn.

    That saves every process 1.6 s. The module is for assisted generation; no model of ours uses it.
    """
    utils: Any = import_module("transformers.utils")
    available = utils.is_sklearn_available
    utils.is_sklearn_available = lambda: False
    try:
        import_module("transformers.generation.candidate_generator")
    finally:
        utils.is_sklearn_available = available


# This must happen before the first model of transformers is imported, hence at import.
_import_assisted_generation_without_sklearn()
