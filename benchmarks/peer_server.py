"""What people write: a model behind FastAPI and sentence-transformers' CrossEncoder, to be compared with.

    python -m benchmarks.peer_server FOLDER --port 8001 [--threads 1] [--int8]

Every request is scored by itself, with CrossEncoder's own batch size, on one of so many threads; on a GPU in bfloat16,
with --int8 by ONNX Runtime (`benchmarks.onnx_peer`). It speaks as much of text-embeddings-inference's `POST /rerank` as
the client asks for.
"""

import argparse
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import torch
import uvicorn
from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from fastapi import FastAPI
from pydantic import BaseModel
from sentence_transformers import CrossEncoder

from benchmarks.onnx_peer import OnnxPeer

STARTING = 120
"""Seconds that loading may take."""


class Request(BaseModel):
    """Texts to put in order for a query."""

    query: str
    texts: list[str]


class Rank(BaseModel):
    """A text's place in the request, and its score."""

    index: int
    score: float


def create_app(folder: str, threads: int, int8: bool) -> FastAPI:
    """Return the server, with its model loaded."""
    half = {"torch_dtype": torch.bfloat16} if torch.cuda.is_available() else {}
    model = OnnxPeer(folder) if int8 else CrossEncoder(folder, model_kwargs=half)

    # Not by FastAPI's own pool: there an answer waits for a thread too, behind all requests that came meanwhile.
    app, limit = FastAPI(), CapacityLimiter(threads)

    @app.get("/health")
    def health() -> str:
        """Say that the model is loaded."""
        return "ok"

    @app.post("/rerank")
    async def rerank(request: Request) -> list[Rank]:
        """Return the texts' places, best first."""
        texts = [(request.query, text) for text in request.texts]
        scores = await run_sync(model.predict, texts, limiter=limit)
        return [Rank(index=int(place), score=float(scores[place])) for place in (-scores).argsort()]

    return app


@contextmanager
def running(folder: str, threads: int, int8: bool = False) -> Iterator[str]:
    """Run the server in a process of its own; yields the URL to ask."""
    port = free_port()
    command = [sys.executable, "-m", "benchmarks.peer_server", folder, "--port", str(port), "--threads", str(threads)]
    command += ["--int8"] if int8 else []
    # In a group of its own: Ctrl-C is the waiting side's, which then ends it.
    server = subprocess.Popen(command, stderr=subprocess.DEVNULL, process_group=0)
    try:
        deadline = time.monotonic() + STARTING
        while not _is_up(port):
            if server.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"The peer did not start: see what {' '.join(command[1:])} says.")
            time.sleep(0.2)
        yield f"http://127.0.0.1:{port}/rerank"
    finally:
        # It may have minutes of scoring before it, and nothing to lose.
        server.kill()
        server.wait()


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _is_up(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/health").is_success
    except httpx.TransportError:
        return False


def main() -> None:
    """Serve until ended."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("folder", help="a model that CrossEncoder opens")
    options.add_argument("--port", type=int, default=8001)
    options.add_argument("--threads", type=int, default=40, help="requests scored at once; FastAPI itself has 40")
    options.add_argument("--int8", action="store_true", help="ONNX Runtime instead of CrossEncoder")
    arguments = options.parse_args()
    app = create_app(arguments.folder, arguments.threads, arguments.int8)
    uvicorn.run(app, host="127.0.0.1", port=arguments.port, access_log=False, log_level="warning")


if __name__ == "__main__":
    main()
