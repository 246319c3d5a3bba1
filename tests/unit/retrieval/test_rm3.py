"""RM3 finds passages without any word of the query; with all weight on the original query it changes no order."""

import json
import subprocess
import sys
from pathlib import Path

# In a process of its own: a JVM stays in the process that started it.
SCRIPT = """
import json, sys
from rayrank.core.config import IndexConfig
from rayrank.retrieval.lucene import Bm25, Indexer, Rm3, Searcher

folder = sys.argv[1]
with Indexer(folder, IndexConfig(), threads=1, vectors=True) as indexer:
    texts = ["apple orchard", "apple orchard cider", "orchard in autumn"]
    # Words in more than a tenth of the passages expand no query.
    texts += [f"passage number {number} about {number * 7}" for number in range(50)]
    indexer.add([f"p{number}" for number in range(len(texts))], texts)
found = {}
for name, rm3 in (("plain", None), ("rm3", Rm3(5, 2, 0.5)), ("query alone", Rm3(5, 2, 1.0))):
    searcher = Searcher(folder, IndexConfig(), Bm25(0.9, 0.4, 5, rm3))
    table = searcher(["q1", "q2", "q3", "q4"], ["apple", "", "the", "zebra"], 2)
    found[name] = [list(row.values()) for row in table.to_pylist()]
print(json.dumps(found))
"""


def test_a_query_is_expanded_with_words_of_the_passages_it_finds_first(tmp_path: Path) -> None:
    order = [sys.executable, "-c", SCRIPT, str(tmp_path / "index")]
    answer = subprocess.run(order, text=True, capture_output=True, check=False, timeout=120)

    assert answer.returncode == 0, answer.stderr
    found = json.loads(answer.stdout.splitlines()[-1])
    assert [row[:3] for row in found["plain"]] == [["q1", "p0", 1], ["q1", "p1", 2]]
    # Words without weight still find passages, at the score 0.
    assert [row[1] for row in found["query alone"] if row[3] > 0] == ["p0", "p1"]
    assert {row[1] for row in found["rm3"]} == {"p0", "p1", "p2"}
    assert found["rm3"][-1][1] == "p2"
    assert {row[0] for row in found["rm3"]} == {"q1"}
