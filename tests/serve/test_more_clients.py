"""Client libraries that need an environment of their own (clients.txt) give the endpoint's scores, too."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.serve.clients import CLIENTS, QUERY, TEXTS

PYTHON = os.environ.get("RAYRANK_CLIENTS", "")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not PYTHON, reason="RAYRANK_CLIENTS does not name the Python of an environment with tests/serve/clients.txt"
    ),
]


@pytest.fixture(scope="module")
def found(server: str) -> dict[str, Any]:
    """The results of every client, best first, or its error. One process runs them all: their imports take long."""
    script = Path(__file__).with_name("clients.py")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    ran = subprocess.run([PYTHON, str(script), server], env=environment, stdout=subprocess.PIPE, text=True, check=True)
    results: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return results


@pytest.mark.parametrize("client", [client.__name__ for client in CLIENTS])
def test_a_client_gets_the_scores_of_the_endpoint(server: str, found: dict[str, Any], client: str) -> None:
    data = requests.post(f"{server}/score", json={"text_1": QUERY, "text_2": TEXTS}, timeout=60).json()["data"]
    expected = sorted(([each["index"], each["score"]] for each in data), key=lambda each: -each[1])
    assert isinstance(found[client], list), found[client]
    assert [place for place, _ in found[client]] == [place for place, _ in expected]
    assert [score for _, score in found[client]] == pytest.approx([score for _, score in expected])
