"""A user's own stop words are used by index and search, and leave no file behind."""

import json
import os
import subprocess
import sys
from pathlib import Path

# In a process of its own: a JVM stays in the process that started it.
SCRIPT = """
import json, sys
from rayrank.core.config import IndexConfig
from rayrank.retrieval.lucene import Bm25, Indexer, Searcher

config, folder = IndexConfig(stopwords="apples, rivers"), sys.argv[1]
with Indexer(folder, config, threads=1) as indexer:
    indexer.add(["p1", "p2"], ["apples and pears", "rivers to the sea"])
plain = IndexConfig(stopwords="none")
found = {}
for name, analysis in (("own", config), ("plain", plain)):
    searcher = Searcher(folder, analysis, Bm25(k1=0.9, b=0.4, depth=5))
    table = searcher(["q1", "q2", "q3"], ["apples", "pears", "the"], 1)
    found[name] = list(zip(table["query_id"].to_pylist(), table["passage_id"].to_pylist()))
print(json.dumps(found))
"""


def test_own_stop_words_are_used_and_their_files_are_removed(tmp_path: Path) -> None:
    files = tmp_path / "files"
    files.mkdir()
    environment = {**os.environ, "TMPDIR": str(files)}
    order = [sys.executable, "-c", SCRIPT, str(tmp_path / "index")]
    answer = subprocess.run(order, env=environment, text=True, capture_output=True, check=False, timeout=120)

    assert answer.returncode == 0, answer.stderr
    found = json.loads(answer.stdout.splitlines()[-1])
    assert found["own"] == [["q2", "p1"], ["q3", "p2"]]
    # The index itself has no stop words, and has the words that are none here.
    assert found["plain"] == [["q2", "p1"], ["q3", "p2"]]
    assert list(files.glob("*.txt")) == []
