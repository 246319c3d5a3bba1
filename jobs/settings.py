"""Show every setting with its value in a preset and what it means, as YAML that --config takes."""

import argparse
import signal
import sys
from collections.abc import Iterator

import yaml
from pydantic import BaseModel

from rayrank.core.errors import RayrankError
from rayrank.core.overrides import build, removed_runs
from rayrank.core.presets import PRESETS
from rayrank.core.progress import say

COMMENTS = 48
"""The column in which comments begin."""


def lines(section: BaseModel, indent: str = "") -> Iterator[str]:
    """Yield a section's settings, sections within it indented under their names."""
    for name, field in type(section).model_fields.items():
        value = getattr(section, name)
        if isinstance(value, BaseModel):
            yield from _within(name, value, indent)
        elif isinstance(value, dict):
            yield from ("", f"{indent}# Runs by name, each a ranked list per query.", f"{indent}{name}:")
            for entry, settings in value.items():
                yield from _within(entry, settings, f"{indent}  ")
            for entry in removed_runs(value):
                yield f"{indent}  {entry}: null"
        # Digests are found out when a run starts.
        elif name != "fingerprint":
            text = yaml.safe_dump([value], width=1000, allow_unicode=True, default_flow_style=True).strip()[1:-1]
            written = f"{name}: {text}"
            said = f"# {field.description}" if field.description else ""
            yield f"{f'{indent}{written}':<{COMMENTS}}  {said}".rstrip()


def _within(name: str, section: BaseModel, indent: str) -> Iterator[str]:
    yield from ("", f"{indent}# {' '.join((type(section).__doc__ or '').split())}", f"{indent}{name}:")
    yield from lines(section, f"{indent}  ")


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--preset", default="demo", help=", ".join(PRESETS))
    options.add_argument("--config", metavar="FILE", help="YAML that changes some of them")
    options.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="as in candidates.depth=100")
    arguments = options.parse_args()
    try:
        config = build(arguments.preset, arguments.config, arguments.set)
    except RayrankError as error:
        say(f"error: {error}")
        sys.exit(2)
    # Who has seen enough, in a pager for one, closes the pipe.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    sys.stdout.write("\n".join(lines(config)).strip() + "\n")
