"""Encoders, their attention, their heads, and how they score."""

from importlib import import_module
from typing import Any


def _import_transformers_without_sklearn() -> None:
    """Import transformers' models without scikit-learn, which only assisted generation needs: 1.6 s a process."""
    utils: Any = import_module("transformers.utils")
    available = utils.is_sklearn_available
    utils.is_sklearn_available = lambda: False
    try:
        import_module("transformers.generation.candidate_generator")
    finally:
        utils.is_sklearn_available = available


_import_transformers_without_sklearn()
