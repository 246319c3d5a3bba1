"""The HTTP API over a real connection, with a scorer whose scores can be computed by hand."""

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest
import uvicorn

from rayrank.core.errors import ConfigError
from rayrank.serve.api import close, create_api
from rayrank.serve.config import ServeConfig
from rayrank.serve.records import Answer, Ask, Figures, Hit, Info, Load, Overloaded, Piece, Timing, Unready

LONG = 200
"""Characters of the longest text that this scorer does not report as truncated."""


class WordScorer:
    """Scores a passage by the number of query words it contains; some queries make it fail as a model can."""

    def __init__(self, name: str = "words", is_stuck: bool = False) -> None:
        self.name, self.is_stuck = name, is_stuck
        self.asks: list[Ask] = []

    async def rerank(self, ask: Ask) -> Answer:
        self.asks.append(ask)
        match ask.query:
            case "overloaded":
                raise Overloaded(2.3)
            case "unready":
                raise Unready
            case "refused":
                raise ConfigError("min_precision=0.9 cannot be given: the model's folder has no table.")
            case "late":
                await asyncio.sleep(60)
            case "broken":
                raise RuntimeError("a secret of the server")
        words = set(ask.query.split())
        logits = [float(len(words & set(passage.split()))) - 1 for passage in ask.passages]
        order = sorted(range(len(logits)), key=lambda place: -logits[place])
        if partial := ask.deadline_ms is not None and ask.deadline_ms < 1:
            order = order[:1]
        shown = [logit if place in order else None for place, logit in enumerate(logits)]
        return Answer(
            logits=shown, probabilities=[None if logit is None else (1 + logit) / 10 for logit in shown], order=order,
            num_tokens=7 * len(logits), cut=[place for place, text in enumerate(ask.passages) if len(text) > LONG],
            query_type=ask.query_type or "DESCRIPTION", partial=partial, model=self.name,
            timing=Timing(0.001, 0.002, 0.003), query_cut=len(ask.query) > LONG,
            warnings=["query_type: zzz\nis unknown."] if ask.query_type == "zzz" else [],
        )  # fmt: skip

    async def explain(self, query: str, passage: str, query_type: str | None) -> dict[str, Any]:
        return {"pieces": passage.split(), "query_type": query_type}

    async def info(self) -> Info:
        return Info(
            model=self.name,
            backend="torch",
            device="cpu",
            length=256,
            query_types=["DESCRIPTION"],
            version="1",
            precision={"num_queries": 3, "levels": []},
        )

    async def loads(self) -> list[Load]:
        return [Load(self.name, 20), Load(self.name, 3)]

    async def ingresses(self) -> list[Figures]:
        return []

    async def tokenise(self, texts: Sequence[str], with_special: bool) -> list[list[Piece]]:
        special = [Piece(101, "[CLS]", True)] if with_special else []
        return [special + [Piece(7, text, False, 0, len(text))] for text in texts]

    async def ready(self) -> None:
        if self.is_stuck:
            raise Unready

    async def search(self, query: str, depth: int) -> list[Hit]:
        if query == "nothing":
            return []
        hits = [
            Hit("p1", "bread needs yeast", 3.0),
            Hit("p2", "whales breathe air", 2.0),
            Hit("p3", "whales sing", 1.0),
        ]
        return hits[:depth]


def served(backends: Mapping[str, WordScorer], config: ServeConfig) -> Iterator[str]:
    """Yield the URL of a server that runs in a thread."""
    # asyncio sets TCP_NODELAY only if the socket names its protocol; without it, each answer takes 40 ms.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    api = create_api(backends, config)
    server = uvicorn.Server(uvicorn.Config(api, log_level="warning"))
    thread = threading.Thread(target=lambda: asyncio.run(server.serve([listener])), daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    server.should_exit = True
    thread.join(10)
    close(api)


@pytest.fixture(scope="session")
def scorer() -> WordScorer:
    return WordScorer()


@pytest.fixture(scope="session")
def api(scorer: WordScorer) -> Iterator[str]:
    config = ServeConfig.model_validate({"name": "words", "limits": {"documents": 50, "body_bytes": 20_000}})
    yield from served({"words": scorer}, config)


@pytest.fixture
def start() -> Iterator[Callable[..., str]]:
    """Start a server with other settings, or with several models."""
    running = []

    def begin(config: ServeConfig, *models: WordScorer) -> str:
        running.append(served({each.name: each for each in models or [WordScorer()]}, config))
        return next(running[-1])

    yield begin
    for each in running:
        next(each, None)
