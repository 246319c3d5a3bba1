"""Plan how many replicas an endpoint needs for a wanted load and latency, from a measurement of a running one.

First measure: the endpoint is loaded with increasing rates for one or two minutes for each number of documents. The
measurement is written to capacity.json, which the report shows with --capacity capacity.json. Then plan from it:

  --measure http://localhost:8000 --documents 10 25
  --rps 40 --documents 25 --p95-ms 200

Documents have generated words, unless --queries names a file of {"query": ..., "documents": [...]} lines, such as the
file of judged dev queries in a model's folder: their length decides what a request costs.
"""

import argparse
import os
import sys
from math import inf

from rayrank.capacity.planning import HEADROOM, plan, sentences
from rayrank.capacity.records import read_capacity
from rayrank.core.errors import ConfigError, RayrankError
from rayrank.core.progress import say
from rayrank.jobs.entry import check_file


def check(arguments: argparse.Namespace) -> None:
    """Refuse options that cannot be used, before the endpoint is loaded."""
    if not arguments.measure and arguments.rps is None:
        raise ConfigError("Name an endpoint to measure with --measure URL, or the load to plan for with --rps.")
    if arguments.rps is not None and (arguments.p95_ms is None or len(arguments.documents or ()) != 1):
        raise ConfigError("--rps needs --p95-ms and one number of --documents: a plan is for one kind of request.")
    numbers = {"--rps": arguments.rps, "--p95-ms": arguments.p95_ms, "--seconds": arguments.seconds,
               "--words": arguments.words, "--documents": min(arguments.documents or [1])}  # fmt: skip
    if wrong := next((name for name, value in numbers.items() if value is not None and not 0 < value < inf), ""):
        raise ConfigError(f"{wrong} {numbers[wrong]:g} cannot be used: it must be a number above 0.")
    if not 0 <= arguments.headroom < 1:
        raise ConfigError(f"--headroom {arguments.headroom:g} cannot be used: it is a share from 0 to below 1.")
    if arguments.measure:
        check_file("--file", arguments.file)


def measured(arguments: argparse.Namespace) -> None:
    """Measure the endpoint, and write the file."""
    from rayrank.capacity.measuring import generated, measure
    from rayrank.serve.keys import first_key

    texts, about = generated(arguments.words), f"generated texts of {arguments.words} words"
    if arguments.queries:
        # Imported here because it loads torch.
        from rayrank.serve.replays import read_replays

        texts = [(each.query, each.passages) for each in read_replays(arguments.queries, None)]
        about = f"the queries and documents of {os.path.basename(arguments.queries)}"  # noqa: PTH119
    documents = sorted(set(arguments.documents or [25]))
    found = measure(arguments.measure, texts, about, documents, arguments.seconds, first_key(), say)
    found.write(arguments.file)
    sys.stdout.write(f"measured: {arguments.file}\n")


def main(arguments: argparse.Namespace) -> None:
    """Measure, plan, or both."""
    check(arguments)
    if arguments.measure:
        measured(arguments)
    if arguments.rps is not None:
        capacity = read_capacity("--file", arguments.file)
        documents, p95 = arguments.documents[0], arguments.p95_ms / 1000
        found = plan(capacity, arguments.rps, documents, p95, arguments.headroom)
        sys.stdout.write("\n".join([*sentences(found, capacity, arguments.rps, documents, p95), ""]))


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--measure", metavar="URL", help="measure the endpoint at this URL")
    options.add_argument("--file", default="capacity.json", help="the measurement; default %(default)s")
    options.add_argument(
        "--documents", type=int, nargs="+", metavar="N", help="documents of a request; several to measure, one to plan"
    )
    options.add_argument("--seconds", type=float, default=10, help="duration of each load; default %(default)s")
    options.add_argument(
        "--words", type=int, default=60, help="mean words of a generated document; default %(default)s"
    )
    options.add_argument("--queries", metavar="FILE", help="measure with these queries and documents")
    options.add_argument("--rps", type=float, help="requests per second that are wanted")
    options.add_argument("--p95-ms", type=float, help="milliseconds that 95 %% of the requests may take")
    options.add_argument(
        "--headroom", type=float, default=HEADROOM, help="share of each replica to leave unused; default %(default)s"
    )
    try:
        main(options.parse_args())
    except RayrankError as error:
        say(f"error: {error}")
        sys.exit(2)
    except KeyboardInterrupt:
        say("stopped; no measurement was written")
        sys.exit(130)
