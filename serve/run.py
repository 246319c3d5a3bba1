"""Start the HTTP endpoint of a model on this machine, or on the cluster that RAY_ADDRESS names.

Settings are KEY=VALUE, as in scaling.max=4 or backend=onnx-int8; Ctrl-C stops the endpoint.
"""

import argparse
import logging
import os
import sys
from collections.abc import Sequence


def start(settings: Sequence[str], host: str, port: int) -> None:
    """Do what `serve run rayrank.serve.app:build KEY=VALUE ...` does, on a host and port of choice."""
    # Imported late: they load Ray, which takes seconds, and a wrong option is reported before.
    import click
    import ray
    from ray import serve

    from rayrank.serve.app import build

    try:
        application = build(dict(setting.split("=", 1) for setting in settings))
    except click.ClickException as error:
        error.show()
        sys.exit(2)
    # As jobs do: without an address Ray would look for a cluster, and wait long for one that has ended.
    ray.init(address=os.environ.get("RAY_ADDRESS", "local"), namespace="serve", logging_level=logging.WARNING)
    serve.start(http_options={"host": host, "port": port})
    try:
        serve.run(application, blocking=True)
    except KeyboardInterrupt:
        serve.shutdown()


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--model", required=True, metavar="DIR", help="a folder written by `rayrank export`")
    options.add_argument("--host", default="127.0.0.1", help="0.0.0.0 lets other machines in; default %(default)s")
    options.add_argument("--port", type=int, default=8000, help="default %(default)s")
    options.add_argument("settings", nargs="*", metavar="KEY=VALUE", help="a setting of the endpoint")
    arguments = options.parse_intermixed_args()
    for setting in arguments.settings:
        if "=" not in setting:
            options.error(f"{setting!r} is not a setting: write KEY=VALUE, as in scaling.max=4")
    start([f"model={arguments.model}", *arguments.settings], arguments.host, arguments.port)
