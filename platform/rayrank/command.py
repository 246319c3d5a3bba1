"""The command `rayrank`: each of its subcommands runs a job, a sweep or the endpoint.

Nothing heavy is imported before a subcommand is known, so that `rayrank --help` and a mistyped word answer at once.
"""

import difflib
import importlib.metadata
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

HELP = {"-h", "--help"}
DATA = "--dataset beir:path/to/folder --storage results"
PIPELINE = "rayrank.jobs.run_pipeline"


class Command(NamedTuple):
    """A subcommand: what it does, an example of its arguments, and the module that it runs."""

    name: str
    summary: str
    example: str = ""
    module: str = ""
    """The job with the command's name, if empty."""
    arguments: tuple[str, ...] = ()
    """Arguments that stand before those of the user."""

    @property
    def runs(self) -> str:
        return self.module or f"rayrank.jobs.{self.name.replace('-', '_')}"

    @property
    def shown(self) -> str:
        """The example as the user types it."""
        return f"rayrank {self.name} {self.example}".rstrip()


COMMANDS = (
    Command("demo", "generate a corpus, train on it, evaluate every run", "", PIPELINE, ("--preset=demo",)),
    Command("run", "the whole flow on your data, from the corpus to the evaluation", DATA, PIPELINE),
    Command("evaluate", "the metrics of a run, compared with another", f"{DATA} --run drbert --baseline bm25"),
    Command("compare", "where two runs differ, query by query", f"{DATA} --run drbert --baseline bm25"),
    Command("ablate", "what each part of DR-BERT is worth: the paper's Table 1", f"{DATA} --seeds 3"),
    Command("distil", "a small re-ranker that learns from a large one", f"{DATA} --teacher bert-large-uncased"),
    Command("sweep", "search for better settings", f"{DATA} --space default --trials 24", "rayrank.tune.sweep"),
    Command("export", "write the model that dev chose as a folder", f"{DATA} --output models/new"),
    Command("serve", "start the HTTP endpoint of a model", "--model models/new scaling.max=4", "rayrank.serve.run"),
    Command("promote", "replace the model of a running endpoint", "--model models/new --to http://127.0.0.1:8265"),
    Command(
        "rank", "rank new queries without an endpoint",
        f"{DATA} --model models/new --queries new.tsv --output new.trec",
    ),
    Command("report", "an HTML page of all that storage has about a configuration", DATA),
    Command("plan", "replicas for a load and a latency, from a measurement", "--rps 40 --documents 25 --p95-ms 200"),
    Command("doctor", "check the machine, the cluster and the storage before a job runs", DATA),
    Command("settings", "every setting with its value in a preset and its meaning", "--preset minilm"),
    Command("build-corpus", "check and tokenise a dataset", DATA),
    Command("build-index", "index the corpus with Lucene", f"{DATA} --set index.language=de"),
    Command("build-candidates", "find the passages to re-rank", f"{DATA} --set candidates.depth=100"),
    Command("first-stages", "compare first stages with each other", f"{DATA} --run bm25 --run dense"),
    Command("pretrain", "pre-train the encoder on the corpus", f"{DATA} --set pretrain.epochs=2"),
    Command("train-query-types", "train a classifier of query types", f"{DATA} --test questions.tsv"),
    Command("train-pointwise", "train the pointwise model", DATA),
    Command("filter-noise", "find unjudged passages that look relevant", f"{DATA} --set noise.threshold=0.8"),
    Command("train-listwise", "train the listwise model, DR-BERT's last phase", f"{DATA} --set listwise.negatives=15"),
    Command("cut-words", "how words that are cut into pieces mislead a re-ranker", f"{DATA} --cases 20"),
    Command("learning-curve", "the quality after training on fewer queries", f"{DATA} --queries 25 100 400"),
    Command("domain-report", "how the corpus differs from general English", DATA),
    Command("demo-encoder", "make the encoder of the preset demo anew", "--output encoder"),
    Command("completion", "print a script that completes commands in a shell", "bash", "rayrank.completion"),
)  # fmt: skip


def overview() -> str:
    """Return the text of `rayrank --help`."""
    lines = ["usage: rayrank COMMAND [OPTIONS]", "", "Train, tune and serve passage re-rankers on Ray.", ""]
    for command in COMMANDS:
        lines += [f"  {command.name:<18}{command.summary}", f"  {'':<18}  {command.shown}"]
    return "\n".join([*lines, "", "`rayrank COMMAND --help` lists the options of a command.", ""])


def named(name: str) -> Command:
    """Return a command; for an unknown one exit with one sentence that names the closest."""
    found = {command.name: command for command in COMMANDS}
    # The modules have underscores, which `python -m jobs.build_corpus` needs.
    asked = name.replace("_", "-")
    if asked not in found:
        close = difflib.get_close_matches(asked, found, n=1)
        advice = f"did you mean `rayrank {close[0]}`?" if close else "`rayrank --help` lists all commands."
        sys.exit(_refuse(f"{name!r} is not a command of rayrank: {advice}"))
    return found[asked]


def _refuse(sentence: str) -> int:
    sys.stderr.write(f"error: {sentence}\n")
    return 2


def main(words: Sequence[str] | None = None) -> None:
    """Run the command that the words of the command line name."""
    name, *arguments = (sys.argv[1:] if words is None else words) or ["--help"]
    if name in HELP:
        sys.stdout.write(overview())
    elif name == "--version":
        sys.stdout.write(f"rayrank {importlib.metadata.version('rayrank')}\n")
    else:
        run(named(name), arguments)


def run(command: Command, arguments: Sequence[str]) -> None:
    """Run the module of a command as `python -m` would; its help begins with an example."""
    if HELP.intersection(arguments):
        sys.stdout.write(f"example: {command.shown}\n\n")
        sys.stdout.flush()
    # argparse prints the first word as the program's name.
    sys.argv = [f"rayrank {command.name}", *command.arguments, *arguments]
    # As with `python -m`, a kind of run or a model of the user's own may lie in the current folder.
    sys.path.append(str(Path.cwd()))
    runpy.run_module(command.runs, run_name="__main__")
