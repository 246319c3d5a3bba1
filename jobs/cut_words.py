"""Show how words that the tokenizer cuts into pieces mislead a re-ranker, and what STRM changes: DR-BERT's Table 3.

The job compares the configuration's model with the same model trained without STRM (or with STRM, if strm.form is off).
It finds passages that share a piece of a query's cut word without having the word, writes the clearest cases, the mean
ranks over all such passages and pictures of the attention between pieces. The runs are made if they are missing.
"""

from typing import TYPE_CHECKING, Any

from rayrank.core.artifacts import Store
from rayrank.core.config import PipelineConfig
from rayrank.core.errors import ConfigError
from rayrank.jobs.entry import Arguments, assignment, parser, run_task

if TYPE_CHECKING:
    from rayrank.stages.cut_words import Options

LEAST = {"cases": 1, "pictures": 0, "top": 1}
"""The smallest value of each option that is a number."""


def chosen(arguments: Arguments, config: PipelineConfig) -> "Options":
    """Return what the report shows; raises ConfigError for options and settings that cannot be used."""
    from rayrank.stages.cut_words import Options, strm_sides

    for name, least in LEAST.items():
        if getattr(arguments, name) < least:
            raise ConfigError(f"--{name} {getattr(arguments, name)} cannot be used: it must be at least {least}.")
    strm_sides(config)
    return Options(arguments.cases, arguments.pictures, arguments.top, arguments.layers)


def run(arguments: Arguments, config: PipelineConfig, store: Store) -> dict[str, Any]:
    """Write the report as JSON, Markdown and PNG, and return it as text."""
    from rayrank.jobs.report_folder import write_report
    from rayrank.reports import cut_words_plot, cut_words_table
    from rayrank.stages import cut_words

    options = chosen(arguments, config)
    key = cut_words.prepare(config, store, options)
    report = cut_words.report(config, store, options)
    pictures = {
        cut_words_table.picture_name(number): picture
        for number, picture in enumerate(cut_words_plot.attention_pngs(report), 1)
    }
    files = {"report.md": cut_words_table.markdown(report).encode(), **pictures}
    shown = cut_words_table.plain(report)
    return write_report(store, ("cut_words", key), {"report": report.to_json()}, files, shown, [config])


if __name__ == "__main__":
    options = parser(__doc__)
    options.add_argument("--run", help="the run whose model is compared; default: the last one that a model ranks")
    options.add_argument("--split", help="default: test if the dataset has it, else dev")
    options.add_argument("--cases", type=int, default=10, help="passages shown in each direction; default: %(default)s")
    options.add_argument("--pictures", type=int, default=3, help="pictures of attention; default: %(default)s")
    options.add_argument(
        "--top", type=int, default=10, help="the last rank that counts as high; default: %(default)s"
    )  # fmt: skip
    options.add_argument(
        "--layers", choices=("last", "mean"), default="last", help="attention of the last layer, or mean of all layers"
    )
    arguments = options.parse_args()
    given = {f"evaluate.{name}": getattr(arguments, name) for name in ("run", "split")}
    run_task(
        arguments,
        lambda config, store: run(arguments, config, store),
        lambda config: chosen(arguments, config),
        [assignment(setting, name) for setting, name in given.items() if name is not None],
    )
