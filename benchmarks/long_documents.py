"""Make a set of long documents from MedQuAD: all answers about one disease, one after another, are one document.

The folder has BEIR's form. A query's relevant document is that of its disease.

  python -m benchmarks.long_documents --data DIR --output NEW
"""

import argparse
import gzip
import json
import re
from collections import defaultdict
from pathlib import Path

OPENINGS = re.compile(
    r"^(what (is \(are\)|are the (symptoms|treatments|stages|complications|genetic changes related) (of|for|to)"
    r"|is the outlook for|causes|to do for)|what research \(or clinical trials\) is being done for"
    r"|how (many people are affected by|to (diagnose|prevent))|do you have information about|who is at risk for|is)\s+",
    re.IGNORECASE,
)
"""What MedQuAD's questions begin with; the name of a disease follows."""


def disease(question: str) -> str:
    """Return what a question is about, in lower case."""
    name = OPENINGS.sub("", question).lower()
    return re.sub(r"(\binherited)?[\s?]*$", "", name)


def _lines(folder: Path, name: str) -> list[dict[str, str]]:
    with gzip.open(folder / f"{name}.jsonl.gz", "rt", encoding="utf-8") as stream:
        return [json.loads(line) for line in stream]


def join(data: Path, output: Path) -> dict[str, int]:
    """Write the set and return its counts."""
    passages = {row["_id"]: row["text"] for row in _lines(data, "corpus")}
    queries = _lines(data, "queries")
    judged = {split: _pairs(data / "qrels" / f"{split}.tsv") for split in ("train", "dev")}
    about = {row["_id"]: disease(row["text"]) for row in queries}
    members = defaultdict[str, dict[str, None]](dict)
    for pairs in judged.values():
        for query_id, passage_id in pairs:
            members[about[query_id]][passage_id] = None
    documents = {f"d{number}": (name, list(found)) for number, (name, found) in enumerate(members.items())}
    of_disease = {name: document_id for document_id, (name, _) in documents.items()}
    (output / "qrels").mkdir(parents=True)
    _write(output / "queries.jsonl", [json.dumps(row, ensure_ascii=False) for row in queries])
    bodies = {document_id: "\n".join(passages[each] for each in found) for document_id, (_, found) in documents.items()}
    rows = [json.dumps({"_id": document_id, "text": text}, ensure_ascii=False) for document_id, text in bodies.items()]
    _write(output / "corpus.jsonl", rows)
    for split, pairs in judged.items():
        found = dict.fromkeys(f"{query_id}\t{of_disease[about[query_id]]}\t1" for query_id, _ in pairs)
        _write(output / "qrels" / f"{split}.tsv", ["query-id\tcorpus-id\tscore", *found])
    return {"documents": len(documents), "queries": len(queries), "words": sum(len(t.split()) for t in bodies.values())}


def _pairs(file: Path) -> list[tuple[str, str]]:
    rows = [line.split("\t") for line in file.read_text(encoding="utf-8").splitlines()[1:]]
    return [(query_id, passage_id) for query_id, passage_id, grade in rows if int(grade)]


def _write(file: Path, lines: list[str]) -> None:
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--data", type=Path, required=True, metavar="DIR", help="MedQuAD in BEIR's form")
    options.add_argument("--output", type=Path, required=True, metavar="NEW", help="a new folder for the set")
    arguments = options.parse_args()
    if arguments.output.exists():
        options.error(f"--output {arguments.output} exists: name a new folder")
    print(join(arguments.data, arguments.output))
