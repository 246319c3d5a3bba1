"""Start the HTTP endpoint of a model on this machine, or on the cluster that RAY_ADDRESS names.

Settings are KEY=VALUE, as in scaling.max=4 or backend=onnx-int8; Ctrl-C stops the endpoint.
"""

import argparse
from collections.abc import Sequence


def start(model: str, settings: Sequence[str]) -> None:
    """Do what `serve run rayrank.serve.app:build model=DIR KEY=VALUE ...` does."""
    # Imported late: it loads Ray, which takes seconds, and a wrong option is reported before.
    from ray.serve.scripts import cli

    cli.main(["run", "rayrank.serve.app:build", f"model={model}", *settings], prog_name="serve")


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--model", required=True, metavar="DIR", help="a folder written by `rayrank export`")
    options.add_argument("settings", nargs="*", metavar="KEY=VALUE", help="a setting of the endpoint")
    arguments = options.parse_intermixed_args()
    for setting in arguments.settings:
        if "=" not in setting:
            options.error(f"{setting!r} is not a setting: write KEY=VALUE, as in scaling.max=4")
    start(arguments.model, arguments.settings)
