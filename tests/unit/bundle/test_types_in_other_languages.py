"""An exported model for another language than English gives queries without a type the default one."""

from types import SimpleNamespace
from typing import Any

import pytest

from rayrank.bundle.predicted_types import types_for
from rayrank.core.config import InputConfig, QueryTypesConfig


@pytest.mark.parametrize(("language", "expected"), [("en", "person"), ("de", "description")])
def test_the_rules_read_english_only(language: str, expected: str) -> None:
    settings = SimpleNamespace(
        input=InputConfig(), query_types=QueryTypesConfig(), language=language, types=("description", "person")
    )
    bundle: Any = SimpleNamespace(settings=settings, query_typer=None)

    assert types_for(bundle, ["who built it", "who"], [None, "person"]) == [expected, "person"]
