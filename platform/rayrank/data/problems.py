"""Flawed rows of a dataset: they are counted, and the configuration decides whether to stop or to leave them out."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from rayrank.core.config import DatasetConfig
from rayrank.core.errors import ProblemsFound
from rayrank.core.progress import say
from rayrank.core.records import Malformed

EXAMPLES = 5


class Kind(NamedTuple):
    """A kind of flaw: the setting that decides whether to stop, and the words for one flawed row and for several."""

    setting: str
    one: str
    many: str


KINDS = {
    "malformed": Kind("on_error", "line that cannot be read", "lines that cannot be read"),
    "empty_passages": Kind("on_empty", "passage without text", "passages without text"),
    "empty_queries": Kind("on_empty", "query without text", "queries without text"),
    "duplicate_passages": Kind("on_duplicate", "passage id that occurs again", "passage ids that occur again"),
    "duplicate_queries": Kind("on_duplicate", "query id that occurs again", "query ids that occur again"),
    "duplicate_judgments": Kind("on_duplicate", "pair judged again", "pairs judged again"),
    "unknown_queries": Kind("on_unknown", "judgment of an unknown query", "judgments of unknown queries"),
    "unknown_passages": Kind("on_unknown", "judgment of an unknown passage", "judgments of unknown passages"),
    "unknown_typed_queries": Kind(
        "on_unknown", "type of an unknown query in dataset.types_file", "types of unknown queries in dataset.types_file"
    ),
    "unknown_run_queries": Kind("on_unknown", "row of an unknown query", "rows of unknown queries"),
    "unknown_run_passages": Kind("on_unknown", "row of an unknown passage", "rows of unknown passages"),
    "shared_queries": Kind("on_shared", "query in several splits", "queries in several splits"),
}


class Counted:
    """Flawed rows by kind: their number, and the first few as examples."""

    def __init__(self) -> None:
        self.counts: dict[str, dict[str, Any]] = {}

    def add(self, kind: str, examples: Iterable[str], count: int | None = None) -> None:
        """Record flawed rows; give `count` if `examples` are only some of them."""
        names = list(examples)
        entry = self.counts.setdefault(kind, {"count": 0, "examples": []})
        entry["count"] += len(names) if count is None else count
        entry["examples"] = (entry["examples"] + names)[:EXAMPLES]


class Problems(Counted):
    """Flawed rows, and the settings that decide whether to stop at them."""

    def __init__(self, config: DatasetConfig, run: str = "") -> None:
        """Take the settings, and the name of the run if the rows are a run's and not the dataset's."""
        super().__init__()
        self._config, self._run = config, run

    def add_malformed(self, row: Malformed) -> None:
        """Record a line that cannot be read, and stop at once if the configuration says so."""
        self.add("malformed", [f"{row.file} line {row.line}: {row.reason}"])
        self.stop_if_decided()

    def stops_at(self, kind: str) -> bool:
        """Return whether the configuration says to stop at this kind."""
        return bool(getattr(self._config, KINDS[kind].setting) == "stop")

    def stop_if_decided(self) -> None:
        """Raise an error for the first kind of flaw that was found and that the configuration says to stop at."""
        for kind, entry in self.counts.items():
            if entry["count"] and self.stops_at(kind):
                owner = f"run {self._run}" if self._run else f"dataset {self._config.source}"
                raise ProblemsFound(
                    f"The {owner} has {_amount(kind, entry)}; fix the source, or leave "
                    f"{'it' if entry['count'] == 1 else 'them'} out with --set dataset.{KINDS[kind].setting}=skip."
                )

    def report(self) -> dict[str, dict[str, Any]]:
        """Show the user which rows were left out, and return their counts and examples for the manifest."""
        found = {kind: entry for kind, entry in self.counts.items() if entry["count"]}
        for kind, entry in found.items():
            say(f"{self._run or 'dataset'}: left out {_amount(kind, entry)}")
        return found


def _amount(kind: str, entry: dict[str, Any]) -> str:
    count, names = entry["count"], entry["examples"]
    if count == 1:
        return f"1 {KINDS[kind].one} ({names[0]})"
    return f"{count:,} {KINDS[kind].many} (such as {'; '.join(names[:3])})"
