"""The settings of the dataset: where it comes from, and what to do with flawed rows."""

from typing import Any, Literal

from pydantic import Field, field_validator

from rayrank.core.section import Section

TYPE_FIELD, GROUP_FIELD = "query_type", "group"
"""The default fields of a BEIR query's metadata that hold its type and its group."""
PASSAGE_TEMPLATE = "{title}\n{text}"
"""The default text of a BEIR passage; a passage without a title is its text."""

PASSAGE_ID = "passage_id"
"""The column of passage ids on storage, which no field may be called."""

Decision = Literal["stop", "skip"]
"""What to do with rows that cannot be used: name them and stop, or leave them out and count them."""


class DemoConfig(Section):
    """The generated corpus of the demo: its size, and the share of answers that are not judged."""

    seed: int = 13
    subjects: int = Field(default=800, ge=20, description="invented subjects, each with several passages")
    categories: int = Field(default=10, ge=1, le=10, description="categories of subjects; fewer are easier to learn")
    unlabelled: float = Field(default=0.2, ge=0, lt=1, description="share of the true answers that have no judgment")


class DatasetConfig(Section):
    """Where the corpus, the queries and the judgments come from, and what to do with flawed rows."""

    source: str = "demo"
    on_error: Decision = Field(default="stop", description="lines that cannot be read")
    on_duplicate: Decision = Field(default="stop", description="ids that occur twice; skip keeps the first")
    on_empty: Decision = Field(default="stop", description="passages and queries without text")
    on_unknown: Decision = Field(default="stop", description="judgments and types of unknown queries or passages")
    on_shared: Decision = Field(
        default="stop",
        description="queries in several splits; skip keeps the query in one split only: test if it is there, "
        "else dev, else train",
    )
    type_field: str = Field(
        default=TYPE_FIELD, min_length=1, description="field of a BEIR query's metadata that holds its type"
    )
    types_file: str = Field(
        default="",
        description="file of query types, for any dataset: query_id<TAB>type lines, .csv or .jsonl; they replace the "
        "dataset's own types",
    )
    group_field: str = Field(
        default=GROUP_FIELD,
        min_length=1,
        description="field of a BEIR query's metadata; queries with the same value are held out together",
    )
    passage_template: str = Field(
        default=PASSAGE_TEMPLATE,
        description="text of a BEIR passage: fields in braces; a line whose fields are all empty is left out",
    )
    fields: tuple[str, ...] = Field(
        default=(),
        description="numeric fields of a BEIR passage, such as its price or date, that runs of kind fuse can use; read "
        "from the row or its metadata",
    )
    holdout: float = Field(
        default=0.2,
        ge=0,
        lt=1,
        description="share of the training queries, at most 1,000 of them, that become dev if there is no dev split",
    )
    train_queries: int | None = Field(
        default=None,
        ge=2,
        description="training queries whose judgments are kept; the others become unjudged; default all",
    )
    train_seed: int = Field(default=0, description="chooses the training queries whose judgments are kept")
    part_bytes: int = Field(default=64 << 20, ge=64, description="bytes of a corpus file that are read as one part")
    relevant_from: int = Field(
        default=1, ge=1, description="lowest grade that counts as relevant; nDCG uses the grades themselves"
    )
    demo: DemoConfig = DemoConfig()
    fingerprint: str = Field(
        default="", description="digest of the source and of the types file, filled in when a job starts"
    )

    @field_validator("passage_template", mode="before")
    @classmethod
    def _line_breaks(cls, template: Any) -> Any:
        """Read a backslash and an n, as a shell passes them on, as a line break."""
        if isinstance(template, dict):
            raise ValueError("braces without quotes are a mapping in YAML, so put quotes around the template")
        return template.replace("\\n", "\n") if isinstance(template, str) else template

    @field_validator("fields")
    @classmethod
    def _each_once(cls, fields: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(fields)) < len(fields) or not all(fields) or PASSAGE_ID in fields:
            raise ValueError(f"it needs different names of fields, none of them empty or {PASSAGE_ID}")
        return fields
