"""Reading a corpus takes the memory of a batch, not of the corpus."""

import gzip
import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

READ = """
import json, resource, sys
from rayrank.core.artifacts import Artifact
from rayrank.core.config import DatasetConfig, TextConfig
from rayrank.stages.corpus import PassageWriter, save_tokenizer
from rayrank.text.pieces import load_tokenizer

folder = sys.argv[1]
artifact = Artifact(folder + "/storage", "corpus", "key")
save_tokenizer(load_tokenizer(TextConfig().tokenizer), artifact)
reader = PassageWriter(artifact, DatasetConfig(source="beir:" + folder), TextConfig())
facts = reader.make({"name": "passages/part-0.parquet", "part": [folder + "/corpus.jsonl.gz", 0, None]})
print(json.dumps([facts["num_passages"], resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024]))
"""


def peak_mb(folder: Path, num_passages: int) -> float:
    rng = random.Random(0)
    words = ["river", "lighthouse", "bogue", "insouciantly", "harp", "of", "the", "engine", "built", "in"]
    (folder / "qrels").mkdir(parents=True)
    (folder / "qrels" / "test.tsv").write_text("q\tp0\t1\n")
    (folder / "queries.jsonl").write_text('{"_id": "q", "text": "a"}\n')
    with gzip.open(folder / "corpus.jsonl.gz", "wt", compresslevel=1) as stream:
        for number in range(num_passages):
            stream.write(json.dumps({"_id": f"p{number}", "text": " ".join(rng.choices(words, k=60))}) + "\n")
    answer = subprocess.run([sys.executable, "-c", READ, str(folder)], capture_output=True, text=True, check=True)
    read, peak = json.loads(answer.stdout.splitlines()[-1])
    assert read == num_passages
    return float(peak)


@pytest.mark.slow
def test_ten_times_the_corpus_in_one_compressed_file_takes_hardly_more_memory(tmp_path: Path) -> None:
    small, large = peak_mb(tmp_path / "small", 12_000), peak_mb(tmp_path / "large", 120_000)

    # The larger one's texts and ids alone are about 90 MB more.
    assert large - small < 40
