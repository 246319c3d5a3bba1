"""Encoders, their attention, their heads, and how they score."""

from importlib import import_module

import transformers.utils


def _import_transformers_without_sklearn() -> None:
    """Import transformers' models without scikit-learn, which only assisted generation needs: 1.6 s a process."""
    available = transformers.utils.is_sklearn_available
    transformers.utils.is_sklearn_available = lambda: False
    try:
        import_module("transformers.generation.candidate_generator")
    finally:
        transformers.utils.is_sklearn_available = available


_import_transformers_without_sklearn()
