import pytest

from rayrank.core import flow
from rayrank.core.errors import ConfigError
from rayrank.core.metric_names import display_name, split_name
from rayrank.core.overrides import build


@pytest.mark.parametrize(
    ("name", "family", "cutoff", "shown"),
    [
        ("MRR@10", "MRR", 10, "MRR@10"),
        ("RR@10", "MRR", 10, "MRR@10"),
        ("rr", "MRR", None, "MRR"),
        ("nDCG@5", "nDCG", 5, "nDCG@5"),
        ("NDCG@1000", "nDCG", 1000, "nDCG@1000"),
        ("nDCG", "nDCG", None, "nDCG"),
        ("AP", "MAP", None, "MAP"),
        ("MAP@100", "MAP", 100, "MAP@100"),
        ("P@1", "P", 1, "P@1"),
        (" R@100 ", "R", 100, "R@100"),
    ],
)
def test_names_are_read_as_ir_measures_writes_them(name: str, family: str, cutoff: int | None, shown: str) -> None:
    assert split_name(name) == (family, cutoff)
    assert display_name(name) == shown


@pytest.mark.parametrize("name", ["foo", "", "MRR@", "MRR@0", "nDCG@1.5", "P", "R", "@10", "MRR 10", "ERR@20"])
def test_an_unknown_metric_is_one_sentence_with_the_field_the_value_and_the_known_forms(name: str) -> None:
    with pytest.raises(ConfigError) as refused:
        build("demo", assignments=[f'training.metric="{name}"'])

    assert str(refused.value) == (
        f"training.metric={name} cannot be used: it is not the name of a metric; known are MRR@10 (or RR@10), nDCG@10, "
        f"MAP (or AP), P@10, R@100, each with any cutoff; change it with --set training.metric=..."
    )


def test_two_names_of_a_metric_give_the_same_key() -> None:
    names = ("MRR@10", "RR@10", "mrr@10")
    configs = [build("demo", assignments=[f"training.metric={name}"]) for name in names]

    assert configs == [build("demo")] * 3
    assert len({flow.key("listwise", config) for config in configs}) == 1
