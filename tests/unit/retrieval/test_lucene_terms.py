"""Lucene finds the same terms in the words of a text as in the text itself, and they are ours."""

import json
import subprocess
import sys

from rayrank.text.terms import term, words_of

# In a process of its own: a JVM stays in the process that started it.
SCRIPT = """
import json, sys
from rayrank.core.config import IndexConfig
from rayrank.retrieval.lucene import analyzer_of, java

analyzer, utilities = analyzer_of(IndexConfig(stopwords="none")), java("io.anserini.analysis.AnalyzerUtils")
print(json.dumps([list(utilities.analyze(analyzer, text).toArray()) for text in json.loads(sys.stdin.read())]))
"""
ENGLISH = "The Insurances that John's insured café, a naïve generation: possibly geology (re-newed) policies"
TEXTS = [
    ENGLISH,
    "Don't ask the U.S.A.'s Senate, it’s 3,000.50 or 1;2 at 12:30; foo,bar end.Next",
    "light-house (rock/jazz) costs €5 or £3 ... a_b _c wait...what? 50% of 3°C ± 2×4",
    "Café—naïve e\u0301t\u0301 हिन्दी soft\u00adhyphen zero\u200bwidth m² ½ “quoted” ‘single’ l’été",
    "東京の人口は、多い。カタカナ 한국어 ไทย Größe İstanbul",
    "mail@example.com https://example.com/a?b=c#d C++ C# .NET and/or x=y [1] {2} <b>bold</b> ~a `b` \\c|d",
    "👩‍👩‍👧 family ❤️ #tag @name 1️⃣",
]


def test_the_words_of_a_text_have_the_terms_of_the_text() -> None:
    joined = [" ".join(words_of(text)) for text in TEXTS]
    answer = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        input=json.dumps([*TEXTS, *joined]), text=True, capture_output=True, check=False, timeout=120,
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr
    found = json.loads(answer.stdout.splitlines()[-1])

    assert found[len(TEXTS) :] == found[: len(TEXTS)]
    assert [term(word) for word in words_of(ENGLISH)] == found[0]
