"""Datasets of the shapes that strangers bring go from files to an exported model on the first try."""

import json
import random
import subprocess
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from sentence_transformers import CrossEncoder
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import BertConfig, BertModel, XLMRobertaConfig, XLMRobertaModel, XLMRobertaTokenizer

from rayrank.bundle.export import load
from rayrank.bundle.text_scorer import check_golden
from rayrank.core.config import MINILM
from rayrank.text.pieces import load_tokenizer
from tests.cluster.conftest import FORKS, SETTINGS, command

SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
QUICK = [
    "pretrain.max_steps=5", "pretrain.epochs=1", "pointwise.max_steps=10", "pointwise.epochs=1",
    "listwise.max_steps=10", "listwise.epochs=1",
]  # fmt: skip


class Folder:
    """A BEIR folder in the making: passages, queries and graded judgments by split."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.passages: list[dict[str, str]] = []
        self.queries: list[dict[str, str]] = []
        self.judgments: dict[str, list[str]] = {"train": [], "test": []}

    def write(self) -> Path:
        self.path.mkdir()
        for name, rows in (("corpus", self.passages), ("queries", self.queries)):
            lines = [json.dumps(row, ensure_ascii=False) for row in rows]
            (self.path / f"{name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
        (self.path / "qrels").mkdir()
        for split, lines in self.judgments.items():
            text = "\n".join(["query-id\tcorpus-id\tscore", *lines])
            (self.path / "qrels" / f"{split}.tsv").write_text(text + "\n", encoding="utf-8")
        return self.path


def run(
    job: str, storage: Path, folder: Path, environment: dict[str, str], settings: list[str], *more: str
) -> subprocess.CompletedProcess[str]:
    """Run a job with the small settings of this folder's tests; later settings replace earlier ones."""
    # The encoder of the other tests and the size of the demo have no place here.
    kept = [each for each in SETTINGS if not each.startswith(("dataset.demo", "encoder.layers"))]
    chosen = [part for each in (*kept, *QUICK, *settings) for part in ("--set", each)]
    start = command(job, storage)[:5]
    return FORKS.run([*start, "--preset", "demo", "--dataset", f"beir:{folder}", *chosen, *more], environment)


def long_abstracts(path: Path) -> Path:
    """Titles, abstracts of about 300 word pieces and grades from 0 to 2, in train and test but not in dev."""
    folder, rng = Folder(path), random.Random(3)
    words = "cell protein growth dose trial patient gene factor signal tissue response level study group".split()
    for number in range(60):
        name = f"kinase{number}x"
        for part, title in enumerate((f"The role of {name}", f"{name} in mice", f"A note on {name}")):
            body = " ".join(rng.choices(words, k=290)) + f" {name} was measured."
            folder.passages.append({"_id": f"d{number}-{part}", "title": title, "text": body})
        folder.queries.append({"_id": f"q{number}", "text": f"what is the role of {name}"})
        split = "train" if number < 45 else "test"
        folder.judgments[split] += [f"q{number}\td{number}-{part}\t{2 - part}" for part in range(3)]
    return folder.write()


@pytest.mark.slow
def test_a_set_without_dev_with_titles_long_abstracts_and_grades_goes_through_with_markers_in_windows(
    joining: dict[str, str], tmp_path: Path
) -> None:
    encoder = tmp_path / "encoder"
    BertModel(BertConfig(vocab_size=30_522, max_position_embeddings=512, **SIZES)).save_pretrained(encoder)
    load_tokenizer(MINILM).save_pretrained(encoder)
    folder, storage = long_abstracts(tmp_path / "set"), tmp_path / "storage"
    settings = [
        f"encoder.name={encoder}", f"text.tokenizer={encoder}", "input.length=128", "input.markers=4",
        "input.long_passages=windows", "text.passage_pieces=512",
        "runs.top.kind=windows", "runs.top.of=drbert", "runs.top_fused.kind=interpolate",
        "runs.top_fused.of=[top, candidates]",
    ]  # fmt: skip

    answer = run("run_pipeline", storage, folder, joining, settings, "--json", str(tmp_path / "summary.json"))

    assert answer.returncode == 0, answer.stderr
    assert "held out" in answer.stderr
    assert "chosen on dev" in answer.stdout
    assert "top: the weights of the best windows are" in answer.stderr
    windows = pq.read_table(next((storage / "rerank").glob("*/windows/test"))).to_pandas()
    assert (windows["window_scores"].map(len) > 2).all()  # 300 pieces in windows of at most 128
    judgments = pq.read_table(next((storage / "corpus").glob("*/judgments.parquet"))).to_pandas()
    assert set(judgments["relevance"]) == {0, 1, 2}
    assert set(judgments["split"]) == {"train", "dev", "test"}
    chosen = run("export", storage, folder, joining, settings, "--force", "--output", str(tmp_path / "model"))
    assert chosen.returncode == 0, chosen.stderr
    parity = check_golden(load(str(tmp_path / "model")))
    assert parity.objection(exact=True) == ""
    assert parity.num_pairs > 0


# Names in four scripts; in Chinese and Thai no spaces separate the words.
SYLLABLES = {
    "ru": "ка ми ро лен тус вер гра зин".split(),
    "hi": "का मि रो लेन तुस वेर ग्रा ज़िन".split(),
    "zh": list("山水火木金土风云"),
    "th": "กา มี รอ เลน ตุส เวน กรา ซิน".split(),
}
FACTS = {
    "ru": {"высота": "{n} поднимается на {v} метров над рекой.", "цвет": "Стены {n} покрашены краской номер {v}."},
    "hi": {"ऊँचाई": "{n} नदी से {v} मीटर ऊपर उठता है।", "रंग": "{n} की दीवारें रंग संख्या {v} की हैं।"},
    "zh": {"高度": "{n}比河面高出{v}米。", "颜色": "{n}的墙是{v}号颜色。"},
    "th": {"ความสูง": "{n}สูงเหนือแม่น้ำ{v}เมตร", "สี": "ผนังของ{n}ทาสีหมายเลข{v}"},
}


def four_scripts(path: Path) -> Path:
    folder, rng = Folder(path), random.Random(5)
    for number in range(80):
        language = list(SYLLABLES)[number % 4]
        name = "".join(rng.sample(SYLLABLES[language], 4))
        for part, (word, sentence) in enumerate(FACTS[language].items()):
            key = f"{number}-{part}"
            folder.passages.append({"_id": f"d{key}", "text": sentence.format(n=name, v=rng.randrange(10, 99))})
            folder.queries.append({"_id": f"q{key}", "text": f"{name} {word}"})
            folder.judgments["train" if number < 60 else "test"].append(f"q{key}\td{key}\t1")
    return folder.write()


def multilingual_encoder(path: Path, texts: list[str]) -> Path:
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(vocab_size=300, special_tokens=special, unk_token="<unk>", show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    vocabulary = [tuple(row) for row in json.loads(tokenizer.to_str())["model"]["vocab"]]
    XLMRobertaTokenizer(vocab=vocabulary).save_pretrained(path)
    config = XLMRobertaConfig(vocab_size=len(vocabulary), max_position_embeddings=130, type_vocab_size=1, **SIZES)
    XLMRobertaModel(config).save_pretrained(path)
    return path


@pytest.mark.slow
def test_a_set_in_four_scripts_goes_through_with_a_multilingual_tokenizer(
    joining: dict[str, str], tmp_path: Path
) -> None:
    folder, storage, model = four_scripts(tmp_path / "set"), tmp_path / "storage", tmp_path / "model"
    rows = [json.loads(line) for line in (folder / "corpus.jsonl").read_text(encoding="utf-8").splitlines()]
    encoder = multilingual_encoder(tmp_path / "encoder", [row["text"] for row in rows])
    settings = [
        f"encoder.name={encoder}", f"text.tokenizer={encoder}", "index.language=none", "input.length=64",
        "strm.form=off", "pretrain.enabled=false", "input.query_type=false",
    ]  # fmt: skip

    answer = run("run_pipeline", storage, folder, joining, settings)

    assert answer.returncode == 0, answer.stderr
    bm25 = next(line for line in answer.stdout.splitlines() if line.startswith("bm25"))
    assert float(bm25.split()[1]) > 0.5
    pieces = load_tokenizer(str(encoder))
    assert all(pieces.unk_token_id not in pieces(row["text"])["input_ids"] for row in rows)
    exported = run("export", storage, folder, joining, settings, "--force", "--output", str(model))
    assert exported.returncode == 0, exported.stderr
    scores = CrossEncoder(str(model), device="cpu").predict([("山水火木 高度", row["text"]) for row in rows[:8]])
    assert len({round(float(score), 6) for score in scores}) == 8
