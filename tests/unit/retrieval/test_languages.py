"""A language chooses Lucene's analyser, the same one for passages, queries, RM3 and DeepCT's terms."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rayrank.core.config import IndexConfig
from rayrank.core.errors import ConfigError
from rayrank.core.languages import ANALYZERS, CODES, ENGLISH, UNSPACED
from rayrank.core.overrides import build
from rayrank.retrieval.terms import terms_in
from rayrank.text.term_recall import query_term_recall
from rayrank.text.terms import terms_of, words_of

# For each language two passages, and a query that finds the first of them only.
FOUND = {
    "de": ("Die alten Häuser der Stadt", "Flüsse fließen ins Meer", "Haus"),
    "zh": ("东京是日本的首都。", "长江是中国最长的河流。", "日本首都"),
    "ar": ("الكتب الجديدة في المكتبة", "النهر يصب في البحر", "كتاب جديد المكتبة"),
    "ru": ("Старые дома на улицах города", "Реки текут к морю", "дом"),
    "hi": ("लड़कियाँ किताबें पढ़ती हैं।", "नदी समुद्र में बहती है।", "किताब"),
    "th": ("กรุงเทพมหานครเป็นเมืองหลวงของประเทศไทย", "ปลาว่ายน้ำ", "เมืองหลวง"),
    "ja": ("東京は日本の首都です。", "魚は川で泳ぎます。", "日本の首都"),
    "ko": ("서울은 대한민국의 수도입니다.", "강물이 바다로 흐른다.", "대한민국 수도"),
    "km": ("ភ្នំពេញជារាជធានីនៃប្រទេសកម្ពុជា", "ត្រី", "រាជធានី"),
    "fr": ("L'été dans les maisons françaises", "La rivière coule", "maison d'été"),
    "pl": ("Stare domy w Warszawie", "Rzeka wpada do morza", "dom"),
    "fa": ("کتاب‌های بزرگ", "رودخانه به دریا", "کتاب"),
    "none": ("Nyumba kubwa za mji", "Mto unaelekea baharini", "NYUMBA"),
}
# A text with punctuation for each script: Lucene must find the same terms in its words.
TEXTS = {
    "ar": "ما هي الكتب، والمكتبات؟ نعم؛ قرأتها.",
    "bn": "বইগুলি পড়া হয়। নদী সাগরে যায়।",
    "ckb": "کتێبەکان لە کتێبخانە، ڕووبار",
    "de": "Die Häuser (groß), „Straße“ und U-Bahn; 3.000,50 Euro.",
    "el": "Τα μεγάλα σπίτια· ποιος είναι; ναι.",
    "fa": "کتاب‌های بزرگ، رودخانه؟",
    "fr": "L'été, aujourd’hui : « les maisons » d'Aix-en-Provence !",
    "ga": "An t-athair agus na tithe; b'fhearr liom",
    "hi": "लड़कियाँ किताबें पढ़ती हैं। क्या? नदी॥",
    "hy": "Մեծ տներ։ Գետը, ծովը՞",
    "it": "Dell'estate, l'acqua e le case.",
    "ko": "서울은 대한민국의 수도입니다. 강물이, 바다로 흐른다!",
    "pl": "Stare domy w Warszawie, rzeka; morze.",
    "ru": "Старые дома на улицах — города; реки, моря.",
    "ta": "பழைய வீடுகள், ஆறு.",
    "tr": "İstanbul'da evler, ILIK su.",
    "none": "Nyumba kubwa 東京の人口 ไทย, e\u0301t\u0301.",
}

# In a process of its own: a JVM stays in the process that started it.
SCRIPT = """
import json, sys
from rayrank.core.config import IndexConfig
from rayrank.retrieval.lucene import Bm25, Indexer, Rm3, Searcher, analyzer_of, as_analyzed, java

order = json.loads(sys.stdin.read())
utilities, reader = java("io.anserini.analysis.AnalyzerUtils"), java("io.anserini.index.IndexReaderUtils")

def terms(config, text):
    (text,) = as_analyzed([text], config)
    return list(utilities.analyze(analyzer_of(config), text).toArray())

answer = {"found": {}, "indexed": {}, "analysed": {}, "words": {}}
for code, (first, second, query) in order["found"].items():
    config, folder = IndexConfig(language=code), f"{sys.argv[1]}/{code}"
    with Indexer(folder, config, threads=1, vectors=True) as indexer:
        indexer.add(["first", "second"], [first, second])
    table = Searcher(folder, config, Bm25(0.9, 0.4, 5))(["q"], [query], 1)
    answer["found"][code] = table["passage_id"].to_pylist()
    stored = reader.getDocumentVector(reader.getReader(folder), "first")
    answer["indexed"][code] = sorted(stored.keySet().toArray())
    answer["analysed"][code] = sorted(set(terms(config, first)))
for code, texts in order["words"].items():
    answer["words"][code] = [terms(IndexConfig(language=code), text) for text in texts]
answer["every"] = {code: terms(IndexConfig(language=code), "2024") for code in order["codes"]}

config, folder = IndexConfig(language="ru"), f"{sys.argv[1]}/rm3"
with Indexer(folder, config, threads=1, vectors=True) as indexer:
    texts = ["яблоневый сад", "яблоневый сад сидр", "осенний сад"] + [f"номер {number}" for number in range(50)]
    indexer.add([f"p{number}" for number in range(len(texts))], texts)
expanded = Searcher(folder, config, Bm25(0.9, 0.4, 5, Rm3(5, 2, 0.5)))(["q"], ["яблоневый"], 1)
answer["rm3"] = expanded["passage_id"].to_pylist()

folder = f"{sys.argv[1]}/en"
with Indexer(folder, IndexConfig(), threads=1) as indexer:
    indexer.add(["first", "second"], ["The old houses", "a river of Häuser"])
table = Searcher(folder, IndexConfig(), Bm25(0.9, 0.4, 5))(["q1", "q2"], ["the house", "Haus"], 1)
answer["english"] = [list(row.values()) for row in table.to_pylist()]
print(json.dumps(answer))
"""


@pytest.fixture(scope="module")
def answer(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    words = {code: [text, " ".join(words_of(text))] for code, text in TEXTS.items()}
    order = {"found": FOUND, "words": words, "codes": list(ANALYZERS)}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path_factory.mktemp("indexes"))],
        input=json.dumps(order), text=True, capture_output=True, check=False, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.parametrize("code", FOUND)
def test_a_passage_is_found_by_other_forms_of_its_words(answer: dict[str, Any], code: str) -> None:
    assert answer["found"][code] == ["first"]


@pytest.mark.parametrize("code", FOUND)
def test_the_index_has_the_terms_that_a_query_of_the_same_text_has(answer: dict[str, Any], code: str) -> None:
    assert answer["indexed"][code] == answer["analysed"][code] != []


@pytest.mark.parametrize("code", TEXTS)
def test_the_words_of_a_text_have_the_terms_of_the_text(answer: dict[str, Any], code: str) -> None:
    text, joined = answer["words"][code]
    assert joined == text != []


def test_every_language_has_an_analyser(answer: dict[str, Any]) -> None:
    assert set(answer["every"]) == set(CODES) - {ENGLISH}
    assert all(terms == ["2024"] for terms in answer["every"].values())


def test_rm3_expands_queries_with_words_of_any_script(answer: dict[str, Any]) -> None:
    assert set(answer["rm3"]) == {"p0", "p1", "p2"}


def test_english_is_analysed_as_before_there_were_other_languages(answer: dict[str, Any]) -> None:
    # Two passages of two terms each: idf = ln(1 + 1.5 / 1.5), and a term frequency of 1 at the mean length. Anserini
    # rounds scores to four decimals.
    ((query_id, passage_id, rank, score),) = answer["english"]
    assert (query_id, passage_id, rank) == ("q1", "first", 1)
    assert score == pytest.approx(0.6931472 / 1.9, abs=1e-4)


def test_deepct_compares_words_as_the_index_does() -> None:
    with terms_in(IndexConfig(language="de")) as terms:
        assert terms(["Häuser", "Haus und Hof", "der", "häuser"]) == [{"haus"}, {"haus", "hof"}, set(), {"haus"}]
        recall = query_term_recall(["Die", "Häuser", "Reihenhaus,Haus"], ["ein Haus", "der Hof"], terms)
    assert recall.tolist() == [0.0, 0.5, 0.5]
    with terms_in(IndexConfig()) as terms:
        assert terms is terms_of


@pytest.mark.parametrize("code", sorted(UNSPACED))
def test_deepct_refuses_languages_without_spaces_between_words(code: str) -> None:
    with pytest.raises(ConfigError, match=f"index.language={code} cannot be weighed"), terms_in(_config(code)):
        raise AssertionError


def _config(code: str) -> IndexConfig:
    return build("demo", assignments=[f"index.language={code}"]).index


def test_an_unknown_language_is_one_sentence_that_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError) as error:
        _config("xx")
    assert str(error.value).startswith("index.language=xx cannot be used: no analyser has this code; choose ar, ")
    assert f"{', '.join(CODES[:-1])}, or none for any other language" in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("setting", ["stemmer=krovetz", "stemmer=none", "stopwords=none", "stopwords=und, oder"])
def test_the_settings_of_english_are_refused_in_other_languages(setting: str) -> None:
    with pytest.raises(ConfigError, match=f"^index.{setting} cannot be used: it is for English only, and .* is de;"):
        build("demo", assignments=["index.language=de", f"index.{setting}"])
    build("demo", assignments=["index.language=en", f"index.{setting}"])


def test_norwegian_is_a_language_in_a_file_too(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("index: {language: no}\n")
    assert build("demo", str(file)).index.language == "no"


def test_an_index_from_before_there_were_languages_is_english() -> None:
    assert IndexConfig.model_validate({"stemmer": "porter", "stopwords": "none"}).language == ENGLISH
