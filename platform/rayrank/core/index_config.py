"""The settings of the Lucene index."""

from typing import Literal

from pydantic import Field, ValidationInfo, field_validator

from rayrank.core.languages import CODES, ENGLISH
from rayrank.core.section import Section


class IndexConfig(Section):
    """How Lucene analyses the passages and the queries."""

    language: str = Field(
        default=ENGLISH,
        description="ISO code of the dataset's language, which chooses Lucene's analyser; none: words as Unicode "
        "separates them, unstemmed, for a language without an analyser",
    )
    stemmer: Literal["porter", "krovetz", "none"] = Field(
        default="porter", description="for English; other languages have a stemmer of their own"
    )
    stopwords: str = Field(
        default="default",
        description="default, none, or a comma-separated list, for English; other languages have their own",
    )

    @field_validator("language")
    @classmethod
    def _is_known(cls, code: str) -> str:
        if code not in CODES:
            *known, other = CODES
            raise ValueError(f"no analyser has this code; choose {', '.join(known)}, or {other} for any other language")
        return code

    @field_validator("stemmer", "stopwords")
    @classmethod
    def _is_for_english(cls, value: str, info: ValidationInfo) -> str:
        language = info.data.get("language", ENGLISH)
        if language != ENGLISH and value != cls.model_fields[str(info.field_name)].default:
            raise ValueError(f"it is for English only, and index.language is {language}; leave it out")
        return value
