"""Rank the corpus for queries without judgments, and write a run file: a submission, or results for new queries.

Each query is answered as by the endpoint's POST /search with search.depth as deep as the first stage's run:
candidates.first_stage searches, the exported model re-ranks what it found, and both scores are interpolated with the
weight found on dev.

  --model models/new --queries new.tsv --output new.trec
  --model models/new --split eval --output eval.tsv --format msmarco
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rayrank.core import flow
from rayrank.core.artifacts import Artifact, Store, digest_of
from rayrank.core.config import PipelineConfig
from rayrank.core.errors import ConfigError, StorageError
from rayrank.core.leases import leased
from rayrank.core.progress import progress
from rayrank.jobs.entry import Arguments, check_absolute, check_file, parser, run_task

if TYPE_CHECKING:
    from rayrank.serve.config import ServeConfig

PART_QUERIES = 100
"""Queries per part file; a restart ranks only the queries whose file is missing."""

BACKENDS = ("torch", "torch-fp8", "onnx-int8")
VERSION = 2
"""Raise it whenever the same model and first stage give another ranking, or a part file has other facts."""


def run(arguments: Arguments, config: PipelineConfig, store: Store) -> dict[str, Any]:
    """Rank the queries in parts, and write the run file."""
    # Imported late: they load torch, and a wrong option is reported without waiting for that.
    from rayrank.cluster.connection import start_ray
    from rayrank.cluster.partitions import make_missing
    from rayrank.runs.scoring import actor_pool
    from rayrank.serve.query_ranker import QueryRanker

    first_stage = searched(config, store)
    queries = list(queries_of(arguments, first_stage).items())
    start_ray()
    pool = actor_pool(config.resources)
    if arguments.backend == "onnx-int8":
        pool = pool._replace(gpus=0.0)
    settings = settings_of(arguments, first_stage, pool.gpus)
    artifact = Artifact(store.root, "ranked", _key(settings, first_stage, queries))
    items: list[dict[str, Any]] = [
        {"name": f"run/part-{number:05d}.parquet", "queries": queries[start : start + PART_QUERIES]}
        for number, start in enumerate(range(0, len(queries), PART_QUERIES))
    ]
    given = {"artifact": artifact, "settings": settings.model_dump(mode="json"), "threads": pool.cpus}
    empty, warnings = 0, set[str]()
    with leased(artifact, "ranking these queries"), progress("rank", len(queries), "queries") as advance:
        for facts in make_missing(artifact, items, QueryRanker, given, **pool._asdict(), label="rank"):
            empty += facts["num_without_results"]
            warnings.update(facts["warnings"])
            advance(facts["num_queries"])
    num_passages = _write(arguments, artifact, [item["name"] for item in items], settings.name)
    found = f"{len(queries):,} queries, {num_passages:,} passages"
    found += f"; no passage was found for {empty:,} queries" if empty else ""
    return {
        "num_queries": len(queries),
        "num_without_results": empty,
        "findings": [f"{arguments.output}: {found}", *sorted(warnings)],
    }


def settings_of(arguments: Arguments, first_stage: Artifact, gpus: float) -> "ServeConfig":
    """Return the settings with which each process ranks."""
    from rayrank.serve.config import read

    search = {"run": first_stage.url, "depth": first_stage.manifest["config"]["run"]["depth"]}
    return read(
        {
            "model": arguments.model,
            "backend": arguments.backend,
            "search": search,
            "resources": {"gpus": gpus},
            # A process ranks one query after another: no other query can join a batch that waits for more.
            "batching": {"wait_ms": 0},
        }
    )


def searched(config: PipelineConfig, store: Store) -> Artifact:
    """Return the first stage's run; refuse one that cannot search for new queries."""
    from rayrank.serve.first_stages import FOLDERS, open_run

    name = config.candidates.first_stage
    run = store.require(flow.run_node(name, config), config)
    if run.stage not in FOLDERS:
        raise ConfigError(
            f"candidates.first_stage={name} cannot search for new queries: name a run of kind {', '.join(FOLDERS)}."
        )
    return open_run(run.url)


def check(arguments: Arguments) -> None:
    """Refuse options that cannot be used, before anything is loaded."""
    if arguments.queries and arguments.split:
        raise ConfigError("--queries and --split exclude each other: give one of them.")
    if not arguments.queries and not arguments.split:
        raise ConfigError("Name the queries to rank: a file with --queries, or a split of the dataset with --split.")
    check_file("--output", arguments.output)
    check_absolute("--output", arguments.output)
    if arguments.queries:
        from rayrank.data.new_queries import read_new_queries

        read_new_queries(arguments.queries)


def queries_of(arguments: Arguments, first_stage: Artifact) -> dict[str, str]:
    """Return the texts of the queries to rank, by id."""
    from rayrank.data.new_queries import read_new_queries
    from rayrank.serve.first_stages import corpus_of

    if arguments.queries:
        return read_new_queries(arguments.queries)
    rows = corpus_of(first_stage).read_table("queries.parquet", ["query_id", "split", "text"]).to_pylist()
    found = {row["query_id"]: row["text"] for row in rows if row["split"] == arguments.split}
    if not found:
        known = ", ".join(sorted({row["split"] for row in rows}))
        raise ConfigError(f"--split {arguments.split} does not exist: choose one of {known}.")
    return found


def _write(arguments: Arguments, artifact: Artifact, parts: list[str], tag: str) -> int:
    """Write the run file, and return its number of rows."""
    import pyarrow as pa

    from rayrank.data.run_files import write_msmarco, write_trec

    table = pa.concat_tables([artifact.read_table(name) for name in parts])
    # Renamed at the end, so that a job killed here leaves no half file under the given name.
    draft = Path(f"{arguments.output}.draft")
    try:
        with draft.open("wb") as stream:
            if arguments.format == "msmarco":
                write_msmarco(table, stream)
            else:
                write_trec(table, stream, tag=tag)
        draft.replace(arguments.output)
    except OSError as error:
        raise StorageError(
            f"--output {arguments.output} cannot be written: {error.strerror}; the ranking is in storage, so run the "
            f"same command with another file."
        ) from None
    return len(table)


def _key(settings: "ServeConfig", first_stage: Artifact, queries: list[tuple[str, str]]) -> str:
    from rayrank.core.pretrained import content_digest

    model = content_digest(settings.model, "--model")
    return digest_of([VERSION, PART_QUERIES, model, settings.backend, first_stage.key, queries])


if __name__ == "__main__":
    options = parser(__doc__)
    options.add_argument("--model", required=True, metavar="DIR", help="a folder written by `rayrank export`")
    options.add_argument("--queries", metavar="FILE", help="query_id<TAB>text lines, or .jsonl with _id and text")
    options.add_argument("--split", metavar="NAME", help="a split of the dataset, such as one without judgments")
    options.add_argument("--output", required=True, metavar="FILE", help="the run file to write")
    options.add_argument("--format", choices=("trec", "msmarco"), default="trec", help="default: %(default)s")
    options.add_argument(
        "--backend", choices=BACKENDS, default="torch", help="how scores are computed; default: %(default)s"
    )
    arguments = options.parse_args()
    run_task(arguments, lambda config, store: run(arguments, config, store), lambda config: check(arguments))
