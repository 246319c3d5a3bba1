"""Start the endpoint, and stop it at Ctrl-C or SIGTERM when the requests in flight are answered.

Settings are KEY=VALUE, those of serve/config.yaml, as in scaling.max=4 or backend=onnx-int8.
"""

import argparse
import logging
import os
import signal
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

from rayrank.cluster.connection import connect
from rayrank.core.errors import ConfigError, RayrankError
from rayrank.core.progress import say
from rayrank.serve.config import MODEL_NAME, ServeConfig, read
from rayrank.serve.ports import check_free

HOOK = "RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH", "rayrank.serve.proxy:middlewares"
"""The environment variable, read where Ray runs, that names what Ray puts around its HTTP proxies."""

SIGNALS = signal.SIGINT, signal.SIGTERM
"""The signals that stop the server."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until a signal arrives; a user's mistake is printed as one sentence, with exit status 2."""
    options = parser().parse_intermixed_args(arguments)
    try:
        settings = _settings(options)
        config = read(settings)
        # First of all: Ray lets several servers share a port, and each would get a part of the requests.
        check_free(options.host, options.port)
        _serve(config, settings, options.host, options.port)
    except RayrankError as error:
        say(f"error: {error}")
        sys.exit(2)
    except KeyboardInterrupt:  # before a signal stops the server in its own way
        say("stopped before the server was up")
        sys.exit(130)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument(
        "--model", action="append", default=[], metavar="[NAME=]DIR",
        help="a folder written by `rayrank export`; once for each model, of which the first is the default",
    )  # fmt: skip
    options.add_argument("--host", default="127.0.0.1", help="0.0.0.0 lets other machines in; default %(default)s")
    options.add_argument("--port", type=int, default=8000, help="default %(default)s")
    options.add_argument("settings", nargs="*", metavar="KEY=VALUE")
    return options


def _settings(options: argparse.Namespace) -> dict[str, Any]:
    pairs = [setting.partition("=") for setting in options.settings]
    if wrong := next((key for key, equals, _ in pairs if not equals), None):
        raise ConfigError(f"{wrong} is no setting: write KEY=VALUE, as in scaling.max=4.")
    settings: dict[str, Any] = {key: value for key, _, value in pairs}
    further: dict[str, str] = {}
    for place, (name, folder) in enumerate(map(_named, options.model)):
        if not place:
            settings |= {"model": folder} | ({"name": name} if name else {})
        elif (own := name or Path(folder).name) in further:
            raise ConfigError(f"--model {folder} has the name {own} of another model: write --model NAME={folder}.")
        else:
            further[own] = folder
    if further:
        settings["models"] = further
    return settings


def _named(model: str) -> tuple[str, str]:
    """Return the name, which may be missing, and the folder of a model on the command line."""
    name, equals, folder = model.partition("=")
    return (name, folder) if equals and MODEL_NAME.fullmatch(name) and not Path(model).exists() else ("", model)


def _serve(config: ServeConfig, settings: dict[str, Any], host: str, port: int) -> None:
    # Imported here because they load Ray and torch, and a wrong option is reported without waiting for that.
    import ray
    from ray import serve

    from rayrank.serve.app import application
    from rayrank.serve.draining import forget, stop

    app = application(settings)
    _join_ray()
    # After ray.init, which sets a handler of SIGTERM itself.
    stopped = Stopped()
    try:
        # A process that was ended while it stopped a server on this cluster has left its notice.
        forget()
        serve.start(http_options={"host": host, "port": port})
        serve.run(app)
        stopped.is_up = True
        name = f"[{host}]" if ":" in host else host
        models = ", ".join(config.each())
        say(f"serving {models} at http://{name}:{port} (Ctrl-C stops it when all requests are answered)")
        while not stopped.event.wait(1):
            pass
    except KeyboardInterrupt:
        pass
    except RuntimeError as error:
        if not stopped.event.is_set():
            with suppress(Exception):  # an error of the shutdown must not hide why the start failed
                # A cluster that was joined would keep the failed application, and refuse the corrected command.
                serve.shutdown()  # type: ignore[no-untyped-call]
            raise ConfigError(f"{config.model} does not start: {_reason(error)}") from None
    say(f"stopping: no new requests; those in flight have {config.scaling.drain_s:g} s")
    left = stop(config.scaling.drain_s)
    with suppress(Exception):  # whatever Ray finds while it ends its processes, they end
        ray.shutdown()
    say(f"stopped; {left} requests were cut off" if left else "stopped; all requests were answered")


def _join_ray() -> None:
    """Start Ray, or join the one that RAY_ADDRESS names if it serves nothing yet."""
    from ray import serve

    os.environ.setdefault(*HOOK)
    connect(namespace="serve", logging_level=logging.WARNING)
    if serve.status().applications:
        address = os.environ.get("RAY_ADDRESS")
        raise ConfigError(f"RAY_ADDRESS={address} serves already: change that endpoint with serve deploy.")


def _reason(error: Exception) -> str:
    """Return the last line of an error's message, or the name of an error without one."""
    return str(error).strip().rpartition("\n")[2] or type(error).__name__


class Stopped:
    """Notes Ctrl-C or SIGTERM, and interrupts a server that is not up yet; a second one ends the process."""

    def __init__(self) -> None:
        self.event = threading.Event()
        self.is_up = False
        for name in SIGNALS:
            signal.signal(name, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.event.set()
        for name in SIGNALS:
            signal.signal(name, signal.SIG_DFL)
        if not self.is_up:
            raise KeyboardInterrupt


if __name__ == "__main__":
    main()
