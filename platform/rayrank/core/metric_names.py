"""The grammar of metric names, as ir_measures writes them; `measure.metrics` computes the values."""

import re

FORMS = "MRR@10 (or RR@10), nDCG@10, MAP (or AP), P@10, R@100, each with any cutoff"

_FAMILIES = {"mrr": "MRR", "rr": "MRR", "ndcg": "nDCG", "map": "MAP", "ap": "MAP", "p": "P", "r": "R"}
_NEED_CUTOFF = {"P", "R"}
_NAME = re.compile(r"([a-z]+)(?:@([1-9]\d*))?", re.IGNORECASE)


def split_name(name: str) -> tuple[str, int | None]:
    """Return a metric's family (MRR, nDCG, MAP, P or R) and its cutoff, None if the whole ranking counts."""
    found = _NAME.fullmatch(name.strip())
    family = _FAMILIES.get(found[1].lower()) if found else None
    if not found or not family or (family in _NEED_CUTOFF and not found[2]):
        raise ValueError(f"it is not the name of a metric; known are {FORMS}")
    return family, int(found[2]) if found[2] else None


def display_name(name: str) -> str:
    """Return the name under which a metric is reported, such as MRR@10 for rr@10."""
    family, cutoff = split_name(name)
    return family if cutoff is None else f"{family}@{cutoff}"
