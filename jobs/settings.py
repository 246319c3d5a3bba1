"""Show every setting with its value in a preset and what it means, as YAML for --config."""

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
    """Yield a section's settings; nested sections are indented under their names."""
    for name, field in type(section).model_fields.items():
        value = getattr(section, name)
        if isinstance(value, BaseModel):
            yield from _section_lines(name, value, indent)
        elif isinstance(value, dict):
            yield from ("", f"{indent}# Runs by name, each a ranked list per query.", f"{indent}{name}:")
            for entry, settings in value.items():
                yield from _section_lines(entry, settings, f"{indent}  ")
            for entry in removed_runs(value):
                yield f"{indent}  {entry}: null"
        # Digests are computed when a job starts.
        elif name != "fingerprint":
            text = yaml.safe_dump([value], width=1000, allow_unicode=True, default_flow_style=True).strip()[1:-1]
            written = f"{name}: {text}"
            comment = f"# {field.description}" if field.description else ""
            yield f"{f'{indent}{written}':<{COMMENTS}}  {comment}".rstrip()


def _section_lines(name: str, section: BaseModel, indent: str) -> Iterator[str]:
    yield from ("", f"{indent}# {' '.join((type(section).__doc__ or '').split())}", f"{indent}{name}:")
    yield from lines(section, f"{indent}  ")


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--preset", default="demo", help=", ".join(PRESETS))
    options.add_argument("--config", metavar="FILE", help="YAML that changes some settings")
    options.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="as in candidates.depth=100")
    arguments = options.parse_args()
    try:
        config = build(arguments.preset, arguments.config, arguments.set)
    except RayrankError as error:
        say(f"error: {error}")
        sys.exit(2)
    # A pager closes the pipe when the user quits; the job then ends without a traceback.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    sys.stdout.write("\n".join(lines(config)).strip() + "\n")
