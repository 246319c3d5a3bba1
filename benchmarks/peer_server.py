"""A baseline server: sentence-transformers' CrossEncoder behind FastAPI, as many teams write it.

    python -m benchmarks.peer_server FOLDER --port 8001 [--threads 1] [--int8]

Every request is scored separately, with CrossEncoder's default batch size, on one of --threads threads: in bfloat16 on
a GPU, or with --int8 by ONNX Runtime (`benchmarks.onnx_peer`). The server implements the part of
text-embeddings-inference's `POST /rerank` that the load generator uses, and also reads `documents` for `texts`.
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
from pydantic import AliasChoices, BaseModel, Field
from sentence_transformers import CrossEncoder

from benchmarks.onnx_peer import OnnxPeer

STARTUP_S = 120
"""Seconds that loading the model may take."""


class Request(BaseModel):
    """A query and the texts to re-rank for it."""

    query: str
    texts: list[str] = Field(validation_alias=AliasChoices("texts", "documents"))


class Rank(BaseModel):
    """The position of a text in the request, and its score."""

    index: int
    score: float


def create_app(folder: str, threads: int, int8: bool) -> FastAPI:
    """Load the model, and return the server."""
    half = {"torch_dtype": torch.bfloat16} if torch.cuda.is_available() else {}
    model = OnnxPeer(folder) if int8 else CrossEncoder(folder, model_kwargs=half)

    # Not in FastAPI's own thread pool: there, sending an answer also waits for a thread, behind all later requests.
    app, limit = FastAPI(), CapacityLimiter(threads)

    @app.get("/health")
    def health() -> str:
        """Return 200 once the model is loaded."""
        return "ok"

    @app.post("/rerank")
    async def rerank(request: Request) -> list[Rank]:
        """Return the positions and scores of the texts, best first."""
        texts = [(request.query, text) for text in request.texts]
        scores = await run_sync(model.predict, texts, limiter=limit)
        return [Rank(index=int(place), score=float(scores[place])) for place in (-scores).argsort()]

    return app


@contextmanager
def running(folder: str, threads: int, int8: bool = False) -> Iterator[str]:
    """Run the server in its own process; yields its URL."""
    port = free_port()
    command = [sys.executable, "-m", "benchmarks.peer_server", folder, "--port", str(port), "--threads", str(threads)]
    command += ["--int8"] if int8 else []
    # In its own process group: Ctrl-C reaches only the waiting process, which then ends this one.
    server = subprocess.Popen(command, stderr=subprocess.DEVNULL, process_group=0)
    try:
        deadline = time.monotonic() + STARTUP_S
        while not _is_up(port):
            if server.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"The baseline server did not start: see the output of python {' '.join(command[1:])}.")
            time.sleep(0.2)
        yield f"http://127.0.0.1:{port}/rerank"
    finally:
        # Killed, because it may have minutes of requests in its queue.
        server.kill()
        server.wait()


def free_port() -> int:
    """Return a free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _is_up(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/health").is_success
    except httpx.TransportError:
        return False


def main() -> None:
    """Serve until the process is ended."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("folder", help="a model folder for CrossEncoder")
    options.add_argument("--port", type=int, default=8001)
    options.add_argument("--threads", type=int, default=40, help="requests scored at once (FastAPI's default is 40)")
    options.add_argument("--int8", action="store_true", help="use ONNX Runtime in int8 instead of CrossEncoder")
    arguments = options.parse_args()
    app = create_app(arguments.folder, arguments.threads, arguments.int8)
    uvicorn.run(app, host="127.0.0.1", port=arguments.port, access_log=False, log_level="warning")


if __name__ == "__main__":
    main()
