"""Learning curve: the whole flow after training on few and on many judged queries, several seeds of each."""

from collections.abc import Sequence

from rayrank.core import flow
from rayrank.core.artifacts import Store, digest_of
from rayrank.core.config import PipelineConfig
from rayrank.core.errors import ConfigError, DatasetError
from rayrank.data.digests import varied
from rayrank.reports.ablation import Procedure, Variant, ablate
from rayrank.reports.learning_curve import CHOSEN, LearningCurve, Point
from rayrank.stages.ablation import for_split, per_query
from rayrank.stages.choice import choose, compared_runs
from rayrank.stages.graph import make_all


def run(
    config: PipelineConfig, store: Store, sizes: Sequence[int], seeds: Sequence[int], parallel: int
) -> tuple[LearningCurve, str]:
    """Make all runs for each number of training queries and seed, choose one on dev, and measure them all.

    Return the curve, and a digest of its evaluations' keys.
    """
    make_all([("corpus", config)], store, parallel)
    split, total = measured_split(config, store), num_training_queries(config, store)
    drawn = sorted({size for size in sizes if size < total})
    configs = {size: [_drawing(config, size, seed) for seed in seeds] for size in drawn}
    configs[total] = [varied(config, {"training.seed": seed}) for seed in seeds]
    # The largest first, so that no long training is left to run alone at the end.
    largest_first = [each for size in sorted(configs, reverse=True) for each in configs[size]]
    wanted = [("evaluate", _measuring(name, split, each)) for each in largest_first for name in compared_runs(each)]
    make_all(wanted, store, parallel)
    points = [_point(size, found, split, store) for size, found in configs.items()]
    keys = sorted(flow.key(node, each) for node, each in wanted)
    return LearningCurve(split, points), digest_of(keys)


def measured_split(config: PipelineConfig, store: Store) -> str:
    """Return the judged split that does not change with the number of training queries: test, or else dev."""
    facts = store.require("corpus", config).manifest
    judged = [name for name in ("test", "dev") if facts["splits"].get(name, {}).get("num_judgments")]
    if "dev" not in judged:
        raise DatasetError(
            f"The dataset {config.dataset.source} has no judged dev queries to choose a run with, and none can be "
            f"held out of train: it needs judged training queries and dataset.holdout above 0."
        )
    if judged == ["dev"] and facts["num_held_out"]:
        raise DatasetError(
            f"The dataset {config.dataset.source} has judged queries in train only, so there are none to measure runs "
            f"on: put some of them into a test split."
        )
    return judged[0]


def num_training_queries(config: PipelineConfig, store: Store) -> int:
    """Return the number of judged training queries, with those that become dev queries."""
    corpus = store.require("corpus", config)
    judgments = corpus.read_table("judgments.parquet", ["query_id", "split"])
    train = {row["query_id"] for row in judgments.to_pylist() if row["split"] == "train"}
    return len(train) + int(corpus.manifest["num_held_out"])


def _drawing(config: PipelineConfig, size: int, seed: int) -> PipelineConfig:
    return varied(config, {"dataset.train_queries": size, "dataset.train_seed": seed, "training.seed": seed})


def _measuring(name: str, split: str, config: PipelineConfig) -> PipelineConfig:
    return for_split(split, varied(config, {"evaluate.run": name, "evaluate.baseline": ""}))


def _point(size: int, configs: Sequence[PipelineConfig], split: str, store: Store) -> Point:
    chosen = [_chosen(config, store) for config in configs]
    names = compared_runs(configs[0])
    runs = {name: [per_query(_measuring(name, split, config), store) for config in configs] for name in names}
    titles = {name: flow.title(name, configs[0]) for name in names}
    variants = [Variant(titles[name], {split: runs[name]}) for name in names]
    variants.append(Variant(CHOSEN, {split: [runs[name][seed] for seed, name in enumerate(chosen)]}))
    procedure = Procedure.of(configs[0].evaluate)
    return Point(size, [titles[name] for name in chosen], ablate(variants, titles[names[0]], procedure=procedure))


def _chosen(config: PipelineConfig, store: Store) -> str:
    choice = choose(config, store)
    if choice is None:
        raise ConfigError(
            f"candidates.first_stage={config.candidates.first_stage} found nothing for dev queries, so no run can be "
            f"chosen: choose another first stage."
        )
    return choice.name
