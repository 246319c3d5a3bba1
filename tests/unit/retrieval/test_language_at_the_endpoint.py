"""The endpoint analyses queries in the language that the manifest of the index names."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]

# In a process of its own: a JVM stays in the process that started it.
SCRIPT = """
import json, sys, time
from rayrank.core.artifacts import Store
from rayrank.core.overrides import build
from rayrank.retrieval.lucene import Indexer
from rayrank.serve.first_stages import first_stage, open_run

found = {}
for language in ("en", "de"):
    config, store = build("demo", assignments=[f"index.language={language}"]), Store(f"{sys.argv[1]}/{language}")
    store.finish(store.artifact("corpus", config), config, time.monotonic(), {})
    folder = f"{sys.argv[1]}/index-{language}"
    with Indexer(folder, config.index, threads=1) as indexer:
        indexer.add(["p1", "p2"], ["Die alten Häuser", "rivers of the town"])
    index = store.artifact("index", config)
    index.put_folder(folder, "lucene")
    store.finish(index, config, time.monotonic(), {"lucene": "lucene"})
    run = store.finish(store.artifact("run:bm25", config), config, time.monotonic(), {}, node="run:bm25")
    search = first_stage(open_run(run.url))
    found[language] = [search(query)["passage_id"].to_pylist() for query in ("Haus", "river")]
print(json.dumps(found))
"""


def test_a_query_is_analysed_as_the_passages_were(tmp_path: Path) -> None:
    order = [sys.executable, "-c", SCRIPT, str(tmp_path)]
    answer = subprocess.run(order, cwd=ROOT, text=True, capture_output=True, check=False, timeout=120)

    assert answer.returncode == 0, answer.stderr
    assert json.loads(answer.stdout.splitlines()[-1]) == {"en": [[], ["p2"]], "de": [["p1"], []]}
