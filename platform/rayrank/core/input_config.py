"""The settings of the encoder's inputs, and of the query types in them."""

from typing import Literal

from pydantic import Field

from rayrank.core.section import Section


class InputConfig(Section):
    """The input of the encoder, `[CLS] type [SEP] query [SEP] passage [SEP]`: the passage gets the remaining room."""

    length: int = Field(default=180, ge=16)
    query_length: int = Field(default=64, ge=4)
    query_type: bool = True
    markers: int = Field(
        default=0,
        ge=0,
        le=256,
        description="MarkedBERT: the number of distinct query terms that can have markers; [e1] and [/e1] surround "
        "the first term of the query wherever it occurs in query and passage, if both have it; 0: no markers",
    )
    marker_stems: bool = Field(default=True, description="words with the same English stem are the same term")
    marker_stop_words: bool = Field(
        default=False, description="Lucene's English stop words, such as the and of, get markers too"
    )


class QueryTypesConfig(Section):
    """Where the type of a query comes from: the dataset's label, or a prediction for queries without one."""

    ignore_labels: bool = Field(default=False, description="predict the types of labelled queries too")
    predict: Literal["rules", "trained"] = Field(
        default="rules",
        description="rules: for English (index.language), in other languages every query gets the type description; "
        "trained: the classifier that the typer section configures, for any language",
    )
    abbreviation: bool = Field(default=False, description="let the rules predict a sixth type, abbreviation")
