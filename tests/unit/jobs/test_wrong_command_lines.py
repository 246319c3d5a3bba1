"""A wrong command line is one sentence, and creates neither the storage folder nor a log."""

import runpy
import shlex
import sys
from pathlib import Path

import pytest

from rayrank.core.presets import DEMO_ENCODER
from rayrank.jobs import entry

WRONG = [
    (job, ["--preset", "huge"], "--preset huge does not exist")
    for job in (
        "jobs.run_pipeline",
        "jobs.evaluate",
        "jobs.export",
        "jobs.promote",
        "jobs.ablate",
        "jobs.report",
        "tune.sweep",
    )
] + [
    ("jobs.run_pipeline", ["--set", "candidates.dept=3"], "did you mean candidates.depth"),
    ("jobs.run_pipeline", ["--config", "none.yaml"], "--config none.yaml cannot be read"),
    ("jobs.run_pipeline", ["--json", "none/summary.json"], "there is no folder none"),
    ("jobs.export", ["--dataset", "beir:none"], "none does not exist"),
    ("jobs.export", ["--set", "encoder.name=./none"], "encoder.name=./none cannot be found"),
    ("jobs.evaluate", ["--run", "none.trec"], "The run none.trec cannot be read"),
    ("jobs.export", ["--output", "."], "--output . "),
    ("jobs.export", ["--dev-queries", "-1"], "--dev-queries -1 cannot be used: it must be at least 0."),
    ("jobs.promote", [], "Name the new model with --model DIR"),
    ("jobs.promote", ["--model", "m", "--judgments", "qrels"], "name them with --queries FILE"),
    ("jobs.promote", ["--model", "m", "--to", "none.yaml"], "none.yaml"),
    ("jobs.first_stages", ["--run", "lunch"], "--run lunch is not a run of the configuration: choose one of bm25, "),
    ("jobs.first_stages", ["--run", "drbert"], "--run drbert is not a first stage, it ranks what another run found"),
    ("jobs.ablate", ["--only", "lunch"], "--only lunch is not a row of the table"),
    ("jobs.ablate", ["--compare", "BM25", "lunch"], "--compare lunch is not a row of the table"),
    ("jobs.ablate", ["--compare", "BM25", "BM25"], "names the row BM25 twice"),
    ("jobs.ablate", ["--row", "late: strm.first_laye=2"], "did you mean strm.first_layer"),
    ("jobs.distil", ["--teacher", "./none"], "=./none cannot be found"),
    ("jobs.distil", ["--teacher", DEMO_ENCODER, "--teacher-set", "listwise.lrr=1"], "did you mean listwise.lr"),
    ("jobs.distil", ["--teacher", DEMO_ENCODER, "--teacher-set", "candidates.depth=9"], "scores the student's cand"),
    ("jobs.distil", ["--teacher", DEMO_ENCODER, "--student-set", "noise.run=lunch"], "noise.run=lunch cannot be used"),
    ("jobs.distil", ["--teacher", DEMO_ENCODER, "--student-set", "dataset.holdout=0"], "cannot change dataset.holdout"),
    ("jobs.distil", ["--teacher", DEMO_ENCODER, "--teacher-seeds", "0"], "--teacher-seeds 0 cannot be used"),
    ("jobs.compare", ["--run", "bm25", "--baseline", "candidates"], "--run and --baseline are both bm25"),
    ("jobs.cut_words", ["--run", "bm25"], "--run bm25 cannot be used: no model ranks it"),
    ("jobs.cut_words", ["--top", "0"], "--top 0 cannot be used: it must be at least 1"),
    ("jobs.compare", ["--run", "none.trec", "--baseline", "bm25"], "The run none.trec cannot be read"),
    ("jobs.rank", [], "Name the queries to rank: a file with --queries, or a split of the dataset with --split"),
    ("jobs.rank", ["--queries", "a", "--split", "dev"], "--queries and --split exclude each other"),
    ("jobs.rank", ["--queries", "none.tsv"], "--queries cannot be used: the file none.tsv does not exist"),
    ("jobs.rank", ["--split", "dev", "--output", "."], "--output . cannot be written: it is a folder"),
    (
        "jobs.rank",
        ["--split", "dev", "--output", "none/new.trec"],
        "--output none/new.trec cannot be written: there is",
    ),
    ("tune.sweep", ["--space", "none.yaml"], "--space none.yaml cannot be read"),
    ("tune.sweep", ["--trials", "0"], "--trials 0 cannot be used"),
    ("tune.sweep", ["--set", "runs.drbert.model=pointwise"], "no run has model=listwise"),
    ("jobs.train_query_types", ["--test", "none.txt"], "--test=none.txt does not exist"),
]
LONG = "a" * 300
WRONG += [
    ("jobs.build_corpus", ["--config", "recursion.yaml"], "--config recursion.yaml cannot be used: a section contains"),
    (
        "jobs.build_corpus",
        ["--config", "number.yaml"],
        "--config number.yaml is not YAML: a value does not have",
    ),
    ("jobs.build_corpus", ["--config", "date.yaml"], "--config date.yaml is not YAML: a value does not have the type"),
    ("jobs.build_corpus", ["--set", "candidates.depth=!!timestamp x"], "has a value that is not YAML"),
    ("tune.sweep", ["--space", "number.yaml"], "--space number.yaml is not YAML: a value does not have the type"),
    ("jobs.build_corpus", ["--json", f"/tmp/{LONG}"], "cannot be written: File name too long"),
    ("jobs.build_corpus", ["--storage", ""], "cannot be written: it is empty"),
    ("jobs.build_corpus", ["--storage", "file"], "cannot be written: "),
    ("jobs.build_corpus", ["--storage", f"/tmp/{LONG}"], "cannot be written: File name too long"),
    ("jobs.export", ["--output", f"/tmp/{LONG}"], "cannot be written: File name too long"),
    ("jobs.build_corpus", ["--dataset", "beir:~nobody-has-this-name/x"], "nobody-has-this-name/x does not exist"),
    ("jobs.build_corpus", ["--dataset", "beir:http://127.0.0.1:9/x"], "cannot be reached: Cannot connect to host"),
    ("jobs.build_corpus", ["--dataset", "beir:zip://x::none.zip"], "cannot be reached: "),
    ("jobs.build_corpus", ["--dataset", "msmarco-qa:dev.json.zip"], "dev.json.zip is not a complete compressed file"),
    ("jobs.build_corpus", ["--set", f"encoder.name=/{LONG}"], "cannot be found: there is no folder"),
    ("jobs.evaluate", ["--set", "evaluate.seed=-1"], "evaluate.seed=-1 cannot be used"),
    ("jobs.report", ["--capacity", "none.json"], "--capacity none.json cannot be read: No such file or directory"),
    ("jobs.evaluate", ["--run", LONG], "cannot be read: File name too long"),
]
FILES = {
    "file": "",
    "recursion.yaml": "candidates: &section {depth: *section}",
    "number.yaml": "listwise.lr: !!int x",
    "date.yaml": "listwise.lr: !!timestamp x",
    "dev.json.zip": "no archive",
}
REQUIRED = {
    "jobs.export": ["--output", "new"],
    "jobs.promote": ["--to", "http://127.0.0.1:9"],
    "jobs.rank": ["--model", "model", "--output", "new.trec"],
}


@pytest.mark.parametrize(("job", "options", "sentence"), WRONG)
def test_a_wrong_command_line_creates_nothing(
    job: str,
    options: list[str],
    sentence: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, content in FILES.items():
        (tmp_path / name).write_text(content)
    monkeypatch.setattr(sys, "argv", [job, *REQUIRED.get(job, []), "--storage", "storage", *options])

    with pytest.raises(SystemExit) as caught:
        runpy.run_module(job, run_name="__main__")

    assert caught.value.code == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert "Traceback" not in said
    assert {path.name for path in tmp_path.iterdir()} == set(FILES)


@pytest.mark.parametrize("job", ["jobs.build_corpus", "jobs.doctor"])
def test_a_submitted_job_writes_its_summary_to_an_absolute_path_only(
    job: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:9")
    monkeypatch.setattr(sys, "argv", [job, "--storage", str(tmp_path / "storage"), "--json", "summary.json"])

    with pytest.raises(SystemExit) as caught:
        runpy.run_module(job, run_name="__main__")

    assert caught.value.code == 2
    assert "--json summary.json is a relative path" in capsys.readouterr().err
    assert not any(tmp_path.iterdir())


def test_a_missing_artifact_is_reported_with_a_command_to_paste(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--dataset", "demo", "--storage", str(tmp_path / "storage"), "--set", "runs.bm25.title=my words"]
    arguments = entry.parser("").parse_args(given)
    monkeypatch.setattr(entry, "_log_to_file", lambda store: "the log")  # it would take the standard error of all tests

    with pytest.raises(SystemExit):
        entry.run_task(arguments, lambda config, store: {"found": store.require("index", config)})

    line = capsys.readouterr().err.splitlines()[-1]
    assert shlex.split(line.split("`")[1]) == ["rayrank", "build-index", *given]
