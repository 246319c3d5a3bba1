"""User errors end with one sentence and exit code 2, and nothing already computed is lost."""

import gzip
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from rayrank.core.artifacts import Artifact
from rayrank.core.config import DatasetConfig, TextConfig
from rayrank.core.errors import DatasetError
from tests.forked_jobs import Forks

ROOT = Path(__file__).resolve().parents[2]
FORKS = Forks("jobs.summary", "rayrank.stages.corpus", "ir_datasets")

Files = Mapping[str, bytes | None]
"""What a folder holds, by path; None takes a file away."""


def rows(*objects: Any) -> bytes:
    return "".join(json.dumps(value) + "\n" for value in objects).encode()


TEXTS = ("apples and pears", "rivers to the sea", "stars of the north", "bread and salt", "a song of rain", "old maps")
CORPUS = rows(*({"_id": f"p{number}", "text": text} for number, text in enumerate(TEXTS, 1)))
QUERIES = rows(*({"_id": f"q{number}", "text": text} for number, text in enumerate(TEXTS[:4], 1)))
HEADER = b"query-id\tcorpus-id\tscore\n"
TEST = HEADER + b"q3\tp3\t1\nq4\tp4\t2\n"

GOOD: dict[str, Files] = {
    "beir": {
        "corpus.jsonl": CORPUS,
        "queries.jsonl": QUERIES,
        "qrels/train.tsv": HEADER + b"q1\tp1\t1\n",
        "qrels/dev.tsv": HEADER + b"q2\tp2\t1\n",
        "qrels/test.tsv": TEST,
    },
    "msmarco": {
        "collection.tsv": b"p1\tapples and pears\np2\trivers to the sea\n",
        "queries.dev.tsv": b"q1\tapples\n",
        "qrels.dev.tsv": b"q1\t0\tp1\t1\n",
    },
    "trec": {
        "docs.txt": b"<DOC>\n<DOCNO>p1</DOCNO>\n<TEXT>apples</TEXT>\n</DOC>\n",
        "topics.txt": b"<top>\n<num>q1</num>\n<title>apples</title>\n</top>\n",
        "qrels.txt": b"q1 0 p1 1\nq1 0 p2 0\n",
    },
    "car": {
        "paragraphs.cbor": b"\x9f\xff",
        "outlines.cbor": b"\x9f\xff",
        "hierarchical.qrels": b"page/section 0 p1 1\n",
    },
    "msmarco-qa": {"dev.jsonl": rows({"query_id": 1, "query": "apples", "passages": [{"passage_text": "apples"}]})},
}


def write(folder: Path, kind: str, changes: Files | None = None) -> str:
    """Write a good dataset with these changes and return what --dataset calls it."""
    for path, content in {**GOOD[kind], **(changes or {})}.items():
        if content is not None:
            file = folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
    return f"{kind}:{folder / 'dev.jsonl' if kind == 'msmarco-qa' else folder}"


Answer = subprocess.CompletedProcess[str]


def job(name: str, *arguments: object, **environment: str) -> Answer:
    """Run a job to its end in a fork, which need not import anything."""
    return FORKS.run(command(name, arguments), {**without_ray(), **environment})


def job_process(name: str, *arguments: object, **environment: str) -> Answer:
    """Run a job to its end as a user does: in a process of its own."""
    order, changed = command(name, arguments), {**without_ray(), **environment}
    return subprocess.run(order, cwd=ROOT, env=changed, capture_output=True, text=True, check=False, timeout=300)


def command(name: str, arguments: tuple[object, ...]) -> list[str]:
    return [sys.executable, "-m", f"jobs.{name}", "--preset", "demo", *map(str, arguments)]


def without_ray() -> dict[str, str]:
    """Return the environment without the cluster that the tests themselves may be part of."""
    return {key: value for key, value in os.environ.items() if not key.startswith("RAY_")}


# A process of its own: the process of the tests may have a Ray of other tests.
HEAD = """
import json, os, sys, ray
from rayrank.cluster.connection import start_ray
start_ray()
# Ray puts the authentication that it chooses into the environment.
chosen = {key: value for key, value in os.environ.items() if key.startswith("RAY_")}
print(json.dumps({**chosen, "RAY_ADDRESS": ray.get_runtime_context().gcs_address}), flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def joining() -> Iterator[dict[str, str]]:
    """The variables of jobs that join one Ray instead of starting one each."""
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    # At the end its standard input is closed, and with it ends the process and its Ray.
    with subprocess.Popen([sys.executable, "-c", HEAD], cwd=ROOT, env=without_ray(), **pipes) as process:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())


def assert_one_sentence(answer: Answer, *fragments: object) -> None:
    lines = answer.stderr.splitlines()
    assert answer.returncode == 2, answer.stderr
    assert [line for line in lines if line.startswith("error: ")] == lines[-1:]
    assert "Traceback" not in answer.stderr
    assert answer.stdout == ""
    assert lines[-1].endswith((".", "?"))
    for fragment in fragments:
        assert str(fragment) in lines[-1]


def manifests(storage: Path) -> set[str]:
    return {file.parent.parent.name for file in storage.glob("*/*/manifest.json")}


@pytest.mark.parametrize(
    ("arguments", "fragments"),
    [
        pytest.param(["--preset", "huge"], ["--preset huge", "demo, minilm, paper, monobert, markedbert"], id="preset"),
        pytest.param(["--until", "lunch"], ["lunch is neither a stage nor a run"], id="until"),
        pytest.param(["--set", "candidates.dept=3"], ["candidates.dept", "mean candidates.depth?"], id="typo"),
        pytest.param(["--set", "candidates.depth"], ["write --set candidates.depth=VALUE"], id="no-value"),
        pytest.param(["--set", "candidates.depth=-1"], ["candidates.depth=-1", "greater than or equal to 1"], id="low"),
        pytest.param(["--set", "candidates.depth=many"], ["candidates.depth=many", "valid integer"], id="not-a-number"),
        pytest.param(["--set", "colour.red=1"], ["colour.red", "the sections are dataset, text"], id="section"),
        pytest.param(["--set", "candidates.first_stage=x"], ["=x cannot be used", "choose one of bm25,"], id="choice"),
        pytest.param(["--set", "input.query_length=175"], ["input.query_length=175", "raise input.length"], id="cross"),
        pytest.param(["--config", "nowhere.yaml"], ["--config nowhere.yaml", "No such file"], id="config-missing"),
        pytest.param(["--dataset", "beir:/nowhere/at/all"], ["/nowhere/at/all does not exist", "--dataset"], id="path"),
        pytest.param(["--dataset", "csv:/tmp"], ["'csv:/tmp'", "beir:PATH", "--dataset"], id="kind"),
        pytest.param(["--dataset", "beir"], ["'beir'", "beir:PATH", "--dataset"], id="kind-without-path"),
        pytest.param(["--dataset", ""], ["''", "beir:PATH", "--dataset"], id="empty-dataset"),
        pytest.param(["--dataset", "beir:nope://x"], ["nope", "Protocol not known", "--dataset"], id="protocol"),
        pytest.param(["--dataset", "trec:/no/\N{PEAR}"], ["/no/\N{PEAR} does not exist"], id="beyond-the-bmp"),
        pytest.param(["--dataset", "msmarco-qa:/no.json"], ["/no.json does not exist", "--dataset"], id="file"),
        pytest.param(["--dataset", "irds:no-such-set"], ["no-such-set", "ir-datasets.com"], id="irds"),
        pytest.param(["--set", "text.tokenizer=/no/such"], ["text.tokenizer=/no/such", "/no/such"], id="tokenizer"),
        pytest.param(["--json", "nowhere/a.json"], ["--json nowhere/a.json", "no folder nowhere"], id="json"),
        pytest.param(["--json", "/"], ["--json /", "it is a folder"], id="json-folder"),
    ],
)
def test_a_setting_that_cannot_be_used_is_named(tmp_path: Path, arguments: list[str], fragments: list[str]) -> None:
    assert_one_sentence(job("run_pipeline", "--storage", tmp_path, *arguments), *fragments)
    assert manifests(tmp_path) == set()


@pytest.mark.parametrize(
    ("content", "fragments"),
    [
        pytest.param("candidates: {depth: 5", ["is not YAML"], id="not-yaml"),
        pytest.param("- 1\n- 2\n", ["must map sections to settings"], id="list"),
        pytest.param("candidates: {dept: 5}", ["candidates.dept", "mean candidates.depth?"], id="key"),
        pytest.param("candidates: {depth: 0}", ["candidates.depth=0", "greater than or equal to 1"], id="value"),
        pytest.param("dataset: {source: 'beir:/no/where'}", ["/no/where does not exist"], id="source"),
    ],
)
def test_a_configuration_file_is_read_like_the_options(tmp_path: Path, content: str, fragments: list[str]) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(content)
    assert_one_sentence(job("build_corpus", "--storage", tmp_path / "storage", "--config", file), *fragments)


@pytest.mark.parametrize("arguments", [["--nonsense"], ["--preset"]])
def test_an_option_that_does_not_exist_shows_the_usage(arguments: list[str]) -> None:
    answer = job("run_pipeline", *arguments)
    assert answer.returncode == 2
    assert "usage:" in answer.stderr
    assert "Traceback" not in answer.stderr


@pytest.mark.parametrize("arguments", [["--preset", "huge"], ["--dataset", "beir:/\N{PEAR}"], ["--nonsense"]])
def test_a_forked_job_has_the_output_of_a_separate_process(tmp_path: Path, arguments: list[str]) -> None:
    forked, alone = (run("run_pipeline", "--storage", tmp_path, *arguments) for run in (job, job_process))
    assert forked.returncode == alone.returncode == 2
    assert (forked.stdout, forked.stderr) == (alone.stdout, alone.stderr)


@pytest.mark.parametrize("place", ["file/below", "nope://x"])
def test_storage_that_cannot_be_written_is_named(tmp_path: Path, place: str) -> None:
    (tmp_path / "file").write_bytes(b"")
    storage = place if "://" in place else str(tmp_path / place)
    assert_one_sentence(job("build_corpus", "--storage", storage), f"--storage {storage} cannot be written")


def test_a_log_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "logs").write_bytes(b"")
    assert_one_sentence(job("build_corpus", "--storage", tmp_path), tmp_path / "logs", "cannot be written")


def test_a_user_error_is_reported_before_ray_and_torch_are_imported() -> None:
    script = "import sys, jobs.entry; sys.exit({'ray', 'torch', 'transformers'} & set(sys.modules) or 0)"
    answer = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert answer.stderr == ""


def test_a_hub_that_does_not_answer_is_an_error_that_names_the_setting(tmp_path: Path) -> None:
    arguments = ("--dataset", write(tmp_path / "data", "beir"), "--set", "text.tokenizer=no-such/model")
    environment = {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_HOME": str(tmp_path / "hub")}
    # The hub's package reads these when it is imported.
    answer = job_process("build_corpus", "--storage", tmp_path / "storage", *arguments, **environment)
    assert_one_sentence(answer, "text.tokenizer=no-such/model", "a folder on disk")


def test_a_cluster_that_does_not_answer_is_an_error_that_names_its_address(tmp_path: Path) -> None:
    arguments = ("--dataset", write(tmp_path / "data", "beir"), "--storage", tmp_path / "storage")
    answer = job("build_corpus", *arguments, RAY_ADDRESS="127.0.0.1:9")
    assert_one_sentence(answer, "RAY_ADDRESS=127.0.0.1:9", "unset RAY_ADDRESS")


@pytest.mark.parametrize(
    ("kind", "changes", "fragments"),
    [
        pytest.param("beir", {"corpus.jsonl": None}, ["has no corpus.jsonl", "corpus.jsonl.gz"], id="no-corpus"),
        pytest.param("beir", {"corpus.jsonl.gz": b""}, ["corpus.jsonl and", "keep one"], id="two-corpora"),
        pytest.param(
            "beir", {f"qrels/{split}.tsv": None for split in ("train", "dev", "test")}, ["qrels/*.tsv"], id="no-qrels"
        ),
        pytest.param(
            "beir", {"queries.jsonl": None, "queries.jsonl/x": b""}, ["queries.jsonl", "directory"], id="folder"
        ),
        pytest.param("beir", {"queries.jsonl": b""}, ["has no queries", "query files"], id="no-queries"),
        pytest.param(
            "beir", {f"qrels/{split}.tsv": HEADER for split in ("train", "dev", "test")}, ["no judgments"], id="header"
        ),
        pytest.param(
            "beir",
            {"queries.jsonl": QUERIES + b'{"_id": "q5"\n'},
            ["queries.jsonl line 5", "not JSON", "column 13", "dataset.on_error=skip"],
            id="broken-json",
        ),
        pytest.param("beir", {"queries.jsonl": QUERIES + b"[1]\n"}, ["line 5: a JSON list, not an object"], id="list"),
        pytest.param("beir", {"queries.jsonl": QUERIES + rows({"_id": "q5"})}, ["line 5", "'text'"], id="no-text"),
        pytest.param(
            "beir", {"queries.jsonl": QUERIES + rows({"_id": "", "text": "a"})}, ["'_id' is empty"], id="empty-id"
        ),
        pytest.param(
            "beir", {"queries.jsonl": QUERIES + rows({"_id": "q 5", "text": "a"})}, ["'q 5'"], id="id-with-space"
        ),
        pytest.param(
            "beir",
            {"queries.jsonl": QUERIES + b'{"_id": "q5", "text": "\xff"}\n'},
            ["queries.jsonl line 5: byte 24 is not UTF-8", "dataset.on_error=skip"],
            id="not-utf-8",
        ),
        pytest.param("beir", {"qrels/dev.tsv": b"q2\tp2\n"}, ["dev.tsv line 1: 2 tab-separated"], id="columns"),
        pytest.param("beir", {"qrels/dev.tsv": b"q2\tp2\thigh\n"}, ["dev.tsv line 1", "'high'"], id="relevance"),
        pytest.param(
            "beir",
            {"queries.jsonl": None, "queries.jsonl.gz": gzip.compress(QUERIES)[:40]},
            ["queries.jsonl.gz", "not a complete compressed file"],
            id="truncated",
        ),
        pytest.param(
            "beir",
            {"queries.jsonl": QUERIES + rows({"_id": "q1", "text": "again"})},
            ["query id", "(q1)", "dataset.on_duplicate=skip"],
            id="duplicate-query",
        ),
        pytest.param(
            "beir",
            {"queries.jsonl": QUERIES + rows({"_id": "q5", "text": " "})},
            ["query without text (q5)", "dataset.on_empty=skip"],
            id="empty-query",
        ),
        pytest.param(
            "beir",
            {"qrels/test.tsv": TEST + b"q9\tp1\t1\n"},
            ["query q9, passage p1", "dataset.on_unknown=skip"],
            id="unknown-query",
        ),
        pytest.param(
            "beir",
            {"qrels/dev.tsv": HEADER + b"q1\tp2\t1\n"},
            ["q1 in dev and train", "dataset.on_shared=skip"],
            id="shared-query",
        ),
        pytest.param(
            "beir",
            {"qrels/test.tsv": TEST + b"q3\tp3\t2\n"},
            ["query q3, passage p3", "dataset.on_duplicate=skip"],
            id="judged-twice",
        ),
        pytest.param("msmarco", {"collection.tsv": None}, ["has no collection.tsv"], id="msmarco-no-collection"),
        pytest.param("msmarco", {"queries.dev.tsv": b"q1\n"}, ["queries.dev.tsv line 1"], id="msmarco-columns"),
        pytest.param(
            "msmarco", {"qrels.dev.tsv": b"q1 0 p1\n"}, ["qrels.dev.tsv line 1: 3 fields"], id="msmarco-qrels"
        ),
        pytest.param("trec", {"topics.txt": None}, ["has no queries", "<top>"], id="trec-no-topics"),
        pytest.param(
            "trec", {"topics.txt": b"<top>\n<num>q1</num>\n</top>\n"}, ["topics.txt line 1", "<title>"], id="trec-title"
        ),
        pytest.param("car", {"outlines.cbor": None}, ["has no outlines"], id="car-no-outlines"),
        pytest.param("car", {"outlines.cbor": b"\x9f\x83"}, ["outlines.cbor is damaged", "again"], id="car-damaged"),
        pytest.param("msmarco-qa", {"dev.jsonl": b'{"query": {"0": "a"}}'}, ["holds columns"], id="msmarco-qa-columns"),
        pytest.param("msmarco-qa", {"dev.jsonl": b"[{}, "}, ["dev.jsonl is not JSON at line 1"], id="msmarco-qa-cut"),
    ],
)
def test_a_dataset_that_cannot_be_used_is_named(
    tmp_path: Path, kind: str, changes: Files, fragments: list[str]
) -> None:
    arguments = ("--dataset", write(tmp_path / "data", kind, changes), "--storage", tmp_path / "storage")
    assert_one_sentence(job("build_corpus", *arguments), tmp_path / "data", *fragments)
    assert manifests(tmp_path / "storage") == set()


@pytest.mark.parametrize(
    ("changes", "fragments"),
    [
        pytest.param(
            {"corpus.jsonl": CORPUS + rows({"_id": "p1", "text": "again"})},
            ["passage id", "(p1)", "dataset.on_duplicate=skip"],
            id="duplicate-passage",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            {"corpus.jsonl": CORPUS + b'{"_id": "p7"\n'},
            ["corpus.jsonl line 7: not JSON", "dataset.on_error=skip"],
            id="broken-json-in-a-later-part",
        ),
        pytest.param(
            {"qrels/test.tsv": TEST + b"q3\tp9\t1\n"},
            ["query q3, passage p9", "dataset.on_unknown=skip"],
            id="unknown-passage",
            marks=pytest.mark.slow,
        ),
        pytest.param({"corpus.jsonl": b""}, ["has no passages"], id="empty", marks=pytest.mark.slow),
    ],
)
def test_a_corpus_that_readers_cannot_use_is_named(
    joining: dict[str, str], tmp_path: Path, changes: Files, fragments: list[str]
) -> None:
    arguments = ("--dataset", write(tmp_path / "data", "beir", changes), "--storage", tmp_path / "storage")
    arguments += ("--set", "dataset.part_bytes=100", "--set", "resources.readers=1")
    answer = job("build_corpus", *arguments, **joining)
    assert_one_sentence(answer, tmp_path / "data", *fragments)
    assert manifests(tmp_path / "storage") == set()


@pytest.mark.parametrize(
    ("kind", "name", "content", "flaw", "example"),
    [
        ("beir", "corpus.jsonl", b"[]\n", "malformed", "corpus.jsonl line 1: a JSON list, not an object"),
        ("beir", "corpus.jsonl", rows({"_id": "p1"}), "malformed", "line 1: the field 'text' is missing"),
        ("beir", "corpus.jsonl", b"\n\n{\xff}\n", "malformed", "line 3: byte 2 is not UTF-8"),
        ("beir", "corpus.jsonl", rows({"_id": "p1", "text": " "}), "empty_passages", "p1"),
        ("msmarco", "collection.tsv", b"p1\n", "malformed", "collection.tsv line 1: 1 tab-separated fields"),
        ("trec", "docs.txt", b"<DOC>\n</DOC>\n", "malformed", "docs.txt line 1: the document has no <DOCNO>"),
        ("msmarco-qa", "dev.jsonl", rows({"query_id": 1, "query": "a"}), "malformed", "line 1: the field 'passages'"),
    ],
)
def test_a_reader_reports_the_file_and_line_of_a_bad_passage(
    tmp_path: Path, kind: str, name: str, content: bytes, flaw: str, example: str
) -> None:
    facts = read_part(tmp_path, kind, name, content)
    assert facts["num_passages"] == 0
    assert facts["problems"][flaw]["count"] == 1
    assert example in facts["problems"][flaw]["examples"][0]


@pytest.mark.parametrize(
    ("kind", "name", "content", "message"),
    [
        ("car", "paragraphs.cbor", b"\x9f\x83", "paragraphs.cbor is damaged"),
        ("msmarco-qa", "dev.jsonl", b"[{} {}]", "dev.jsonl is not JSON at line 1"),
    ],
)
def test_a_reader_that_fails_leaves_no_file(tmp_path: Path, kind: str, name: str, content: bytes, message: str) -> None:
    with pytest.raises(DatasetError, match=message):
        read_part(tmp_path, kind, name, content)
    assert list((tmp_path / "storage").rglob("part-*")) == []


def read_part(folder: Path, kind: str, name: str, content: bytes) -> dict[str, Any]:
    from rayrank.stages.corpus import PassageWriter, save_tokenizer
    from rayrank.text.pieces import load_tokenizer

    source = write(folder / "data", kind, {name: content})
    artifact = Artifact(str(folder / "storage"), "corpus", "key")
    save_tokenizer(load_tokenizer(TextConfig().tokenizer), artifact)
    reader = PassageWriter(artifact, DatasetConfig(source=source, on_error="skip"), TextConfig())
    return reader.make({"name": "passages/part-0.parquet", "part": [str(folder / "data" / name), 0, None]})


FLAWED: Files = {
    "corpus.jsonl": CORPUS + b"[]\n" + rows({"_id": "p1", "text": "again"}, {"_id": "p7", "text": ""}),
    "queries.jsonl": QUERIES + b"{\n" + rows({"_id": "q1", "text": "again"}, {"_id": "q5", "text": ""}),
    "qrels/dev.tsv": HEADER + b"q2\tp2\t1\nq1\tp2\t1\n",
    "qrels/test.tsv": TEST + b"q3\n" + b"q3\tp3\t1\n" + b"q9\tp1\t1\n" + b"q3\tp9\t1\n",
}
LEFT_OUT = {
    "malformed": 3,
    "empty_passages": 1,
    "empty_queries": 1,
    "duplicate_passages": 1,
    "duplicate_queries": 1,
    "duplicate_judgments": 1,
    "unknown_queries": 1,
    "unknown_passages": 1,
    "shared_queries": 1,
}


def test_with_skip_bad_rows_are_left_out_counted_and_reported(joining: dict[str, str], tmp_path: Path) -> None:
    kinds = ("error", "duplicate", "empty", "unknown", "shared")
    skipping = [option for kind in kinds for option in ("--set", f"dataset.on_{kind}=skip")]
    dataset, report = write(tmp_path / "data", "beir", FLAWED), tmp_path / "summary.json"
    arguments = ("--dataset", dataset, "--storage", tmp_path / "storage", "--json", report, *skipping)
    answer = job("build_corpus", *arguments, **joining)
    assert answer.returncode == 0, answer.stderr
    (stage,) = json.loads(report.read_text())["stages"]
    assert stage["left_out"] == LEFT_OUT
    assert stage["counts"] == {"num_passages": 6, "num_queries": 4, "num_judgments": 4}
    told = [line for line in answer.stderr.splitlines() if line.startswith("dataset: left out ")]
    assert len(told) == len(LEFT_OUT)
    assert any("3 lines that cannot be read" in line and "corpus.jsonl line 7" in line for line in told)
    assert "left out" in answer.stdout


@pytest.fixture(scope="module")
def broken_off(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[object], Answer]:
    """A whole flow on a good dataset whose last stage was asked for something it cannot do."""
    folder = tmp_path_factory.mktemp("flow")
    options: list[object] = ["--dataset", write(folder / "data", "beir"), "--storage", folder / "storage"]
    return options, job_process("run_pipeline", *options, "--set", "evaluate.split=final")


def copied(options: list[object], folder: Path) -> tuple[list[object], Path]:
    """Return the options with a storage of one's own, to damage."""
    storage = folder / "storage"
    shutil.copytree(str(options[3]), storage)
    return [*options[:3], storage], storage


def test_artifacts_made_before_a_user_error_are_kept_and_reused(
    broken_off: tuple[list[object], Answer], tmp_path: Path
) -> None:
    options, answer = broken_off
    assert_one_sentence(answer, "evaluate.split=final", "dev, test, train")
    assert manifests(Path(str(options[3]))) == {"corpus", "index", "search"}
    report = tmp_path / "summary.json"
    until = ["--until", "evaluate", "--json", report]
    assert job("run_pipeline", *copied(options, tmp_path)[0], *until).returncode == 0
    stages = json.loads(report.read_text())["stages"]
    assert {stage["stage"]: stage["reused"] for stage in stages} == {
        "corpus": True,
        "index": True,
        "run:bm25": True,
        "evaluate": False,
    }


@pytest.mark.parametrize(
    ("name", "arguments", "fragments"),
    [
        pytest.param("evaluate", ["--split", "2019"], ["evaluate.split=2019", "dev, test, train"], id="split"),
        pytest.param("evaluate", ["--run", "no: run"], ["The run no: run cannot be read", "bm25"], id="run"),
        pytest.param("evaluate", ["--baseline", "no.trec"], ["The run no.trec cannot be read"], id="baseline"),
        pytest.param("evaluate", ["--run", "README.md"], ["The run file README.md", "line 1:"], id="not-a-run"),
        pytest.param(
            "evaluate",
            ["--set", "candidates.depth=7"],
            ["bm25 artifact", "run `rayrank build-candidates"],
            id="not-yet",
        ),
        pytest.param(
            "build_index", ["--set", "text.query_pieces=9"], ["corpus artifact", "run `rayrank build-corpus"], id="new"
        ),
        pytest.param(
            "build_candidates",
            ["--set", "candidates.first_stage=provided"],
            ["comes with no candidates", "candidates.first_stage=bm25"],
            id="provided",
        ),
    ],
)
def test_a_stage_without_its_input_names_the_job_that_makes_it(
    broken_off: tuple[list[object], Answer], name: str, arguments: list[str], fragments: list[str]
) -> None:
    options, _ = broken_off
    assert_one_sentence(job(name, *options, *arguments), *fragments)
    assert manifests(Path(str(options[3]))) == {"corpus", "index", "search"}


def test_an_artifact_without_a_manifest_does_not_exist(broken_off: tuple[list[object], Answer], tmp_path: Path) -> None:
    options, storage = copied(broken_off[0], tmp_path)
    (manifest,) = storage.glob("corpus/*/manifest.json")
    manifest.unlink()
    assert_one_sentence(job("evaluate", *options), "corpus artifact", "run `rayrank build-corpus --preset demo")


@pytest.mark.parametrize(("stage", "reader"), [("corpus", "evaluate"), ("search", "build_candidates")])
def test_a_damaged_manifest_is_named(
    broken_off: tuple[list[object], Answer], tmp_path: Path, stage: str, reader: str
) -> None:
    options, storage = copied(broken_off[0], tmp_path)
    (manifest,) = storage.glob(f"{stage}/*/manifest.json")
    manifest.write_text(manifest.read_text()[:50])
    assert_one_sentence(job(reader, *options), manifest, "is damaged", f"delete the folder {manifest.parent}")


def test_a_split_without_provided_candidates_is_named(broken_off: tuple[list[object], Answer], tmp_path: Path) -> None:
    options, storage = copied(broken_off[0], tmp_path)
    (manifest,) = storage.glob("search/*/manifest.json")
    shutil.rmtree(manifest.parent / "test")
    content = json.loads(manifest.read_text())
    content["files"] = {name: size for name, size in content["files"].items() if not name.startswith("test/")}
    manifest.write_text(json.dumps(content))
    assert_one_sentence(job("evaluate", *options), "has no rows in the split test", "first_stage=bm25")


def test_an_artifact_that_lost_a_file_is_named_by_the_next_job(
    broken_off: tuple[list[object], Answer], tmp_path: Path
) -> None:
    options, storage = copied(broken_off[0], tmp_path)
    (folder,) = storage.glob("search/*/test")
    shutil.rmtree(folder)
    assert_one_sentence(job("evaluate", *options), f"{folder.parent} is damaged", "is missing: delete this folder")
