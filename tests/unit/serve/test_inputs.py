"""Long requests are tokenised slice by slice, so that short ones have their turn in between."""

from itertools import chain

from hypothesis import given, strategies as st

from rayrank.serve import inputs
from rayrank.serve.inputs import slices


@given(texts=st.lists(st.integers(0, 120_000).map(lambda length: "x" * length), max_size=12))
def test_slices_hold_every_text_once_in_order_and_only_a_single_text_is_larger(texts: list[str]) -> None:
    found = list(slices(texts))

    assert list(chain(*found)) == texts
    assert all(found)
    assert all(len(each) == 1 or sum(map(len, each)) <= inputs.SLICE_CHARACTERS for each in found)
