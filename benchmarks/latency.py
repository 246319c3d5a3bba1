"""Latency of the endpoint against load, for requests of 10, 100 and 1,000 passages.

    python -m benchmarks.latency [--encoder minilm] [--backend onnx-int8] [--passages 10 100 1000] [--json FILE]

For each size the endpoint is first saturated by concurrent clients, and then gets loads below saturation. Requests are
sent by a separate process at random times that do not depend on the answers; latency counts from these times. A load
has at least --requests requests, and lasts at least --seconds.
"""

import argparse
import json
import os
import signal
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from benchmarks.endpoint import LENGTH, build_work, endpoint
from benchmarks.serve import SHARES
from benchmarks.synthetic import ENCODERS
from rayrank.capacity.load import HEADER, Point, ask, figures
from rayrank.serve.piece_cache import ENTRY_OVERHEAD


def main() -> None:
    """Measure the loads of each size, and print a table for each."""
    arguments = parsed()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended"))
    curves = {}
    for count in arguments.passages:
        with tempfile.TemporaryDirectory() as folder:
            curves[count] = curve(arguments, count, Path(folder))
    if arguments.json:
        facts = {count: [asdict(point) for point in points] for count, points in curves.items()}
        Path(arguments.json).write_text(json.dumps({"settings": vars(arguments), "curves": facts}, indent=2))


def curve(arguments: argparse.Namespace, passages: int, folder: Path) -> list[Point]:
    """Return the figures at each load of requests with so many passages."""
    arguments.pairs = max(20 * passages, 2_000)
    work = build_work(arguments, folder, (passages, passages), encoder=arguments.encoder)
    with endpoint(settings(arguments, work.model, passages)) as url:
        ask(url, work.bodies, 5, clients=2)  # warm-up
        clients = max(2, 320 // passages)
        saturation = figures(ask(url, work.bodies, arguments.seconds, clients=clients)).achieved
        print(f"\n{passages:,} passages a request: {saturation:,.1f} pairs/s with {clients} clients\n{HEADER}")
        points = []
        for rate in (share * saturation / passages for share in SHARES):
            seconds = max(arguments.seconds, arguments.requests / rate)
            points.append(figures(ask(url, work.bodies, seconds, rates=[rate])))
            print(points[-1].row(), flush=True)
    return points


def settings(arguments: argparse.Namespace, model: str, passages: int) -> dict[str, Any]:
    """Return the settings of the endpoint: one replica, a cache too small to help, and room for large requests."""
    on_gpu = torch.cuda.is_available()
    return {
        "model": model,
        "backend": arguments.backend,
        "resources": {"cpus": 1 if on_gpu else arguments.threads, "gpus": int(on_gpu)},
        "batching": {"cache_pieces": 4 * passages * (LENGTH + ENTRY_OVERHEAD)},
    }


def parsed() -> argparse.Namespace:
    """Return the command-line options."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--data", default="../shared/data/insuranceqa", help="a BEIR folder; if missing, generated")
    options.add_argument("--encoder", choices=ENCODERS, default="minilm")
    options.add_argument("--backend", choices=("torch", "onnx-int8", "torch-fp8"), help="default: onnx-int8 on a CPU")
    options.add_argument("--passages", type=int, nargs="+", default=[10, 100, 1000])
    options.add_argument("--requests", type=int, default=200, help="requests of a load, at least")
    options.add_argument("--seconds", type=float, default=20, help="duration of a load, at least")
    options.add_argument("--threads", type=int, default=os.cpu_count(), help="threads of the scorer on a CPU")
    options.add_argument("--json", metavar="FILE")
    arguments = options.parse_args()
    arguments.backend = arguments.backend or ("torch" if torch.cuda.is_available() else "onnx-int8")
    torch.set_num_threads(arguments.threads)
    return arguments


if __name__ == "__main__":
    main()
