from itertools import product

import numpy as np
import pytest
from scipy import stats

from rayrank.measure import significance
from rayrank.measure.significance import compare, mean_interval


def skewed(num_queries, seed=0):
    return np.random.default_rng(seed).beta(0.5, 1.5, num_queries)


def test_interval_contains_the_mean_and_shrinks_with_queries():
    widths = []
    for num_queries in (25, 100, 400, 1600):
        interval = mean_interval(skewed(num_queries), 2000, seed=1)
        assert interval.mean == pytest.approx(skewed(num_queries).mean())
        assert interval.low < interval.mean < interval.high
        widths.append(interval.high - interval.low)
    assert widths == sorted(widths, reverse=True)
    # Four times the queries, half the width.
    assert widths[3] == pytest.approx(widths[1] / 4, rel=0.25)


def test_interval_agrees_with_the_normal_approximation():
    values = skewed(2000)
    interval = mean_interval(values, 4000, seed=3)
    half = 1.96 * values.std(ddof=1) / np.sqrt(values.size)
    assert interval.low == pytest.approx(values.mean() - half, abs=0.1 * half)
    assert interval.high == pytest.approx(values.mean() + half, abs=0.1 * half)


def test_interval_of_two_queries_is_worked_by_hand():
    # Resampled means are 0, 1/2 and 1 with chances 1/4, 1/2, 1/4.
    assert mean_interval(np.array([0.0, 1.0]), 2000, seed=0, level=0.4) == significance.Interval(0.5, 0.5, 0.5)
    assert mean_interval(np.array([0.0, 1.0]), 2000, seed=0, level=0.6) == significance.Interval(0.5, 0.0, 1.0)


def test_the_seed_decides_the_interval_and_the_p_value():
    values, baseline = skewed(60, 1), skewed(60, 2)
    assert mean_interval(values, 500, seed=4) == mean_interval(values, 500, seed=4)
    assert mean_interval(values, 500, seed=4) != mean_interval(values, 500, seed=5)
    first, again = (compare(values, baseline, "randomisation", 500, seed=4) for _ in range(2))
    assert first == again


def test_a_wider_level_gives_a_wider_interval():
    narrow, wide = (mean_interval(skewed(100), 1000, seed=0, level=level) for level in (0.8, 0.99))
    assert wide.low < narrow.low < narrow.high < wide.high


def test_batches_cover_every_resample(monkeypatch):
    monkeypatch.setattr(significance, "BATCH_VALUES", 1000)
    interval = mean_interval(skewed(300), 1001, seed=0)
    assert interval.low < interval.mean < interval.high
    # Better on every query: only all kept or all swapped, never drawn, is as extreme.
    comparison = compare(np.ones(300), np.zeros(300), "randomisation", 1001, seed=0)
    assert comparison.p_value == pytest.approx(1 / 1002)


@pytest.mark.parametrize("seed", range(4))
def test_randomisation_agrees_with_all_sign_flips(seed):
    # Multiples of 1/10, so that many flips tie with the observed sum.
    differences = np.random.default_rng(seed).integers(-3, 6, 10) / 10
    flips = np.array(list(product([-1, 1], repeat=10)))
    exact = np.mean(np.abs(flips @ differences) >= abs(differences.sum()) - 1e-9)
    comparison = compare(differences, np.zeros(10), "randomisation", 20_000, seed)
    assert comparison.p_value == pytest.approx(exact, abs=0.015)


def test_randomisation_agrees_with_the_t_test_on_many_queries():
    baseline = skewed(800)
    values = baseline + np.random.default_rng(7).normal(0.006, 0.1, 800)
    expected = stats.ttest_rel(values, baseline).pvalue
    assert 0.01 < expected < 0.5
    t_test = compare(values, baseline, "t", 10_000, seed=0)
    randomisation = compare(values, baseline, "randomisation", 10_000, seed=0)
    assert t_test.p_value == pytest.approx(expected)
    assert randomisation.p_value == pytest.approx(expected, abs=0.02)
    assert (t_test.difference, t_test.low) == (randomisation.difference, randomisation.low)


@pytest.mark.parametrize("test", ["randomisation", "t"])
def test_swapping_the_runs_mirrors_the_comparison(test):
    values, baseline = skewed(90, 1), skewed(90, 2)
    there, back = compare(values, baseline, test, 2000, 5), compare(baseline, values, test, 2000, 5)
    assert there.p_value == pytest.approx(back.p_value, abs=1e-12)
    assert there.difference == pytest.approx(-back.difference)
    assert (there.low, there.high) == pytest.approx((-back.high, -back.low))
    assert there.difference == pytest.approx(values.mean() - baseline.mean())
    assert there.low < there.difference < there.high


@pytest.mark.parametrize("test", ["randomisation", "t"])
@pytest.mark.parametrize("num_queries", [1, 2, 50])
def test_identical_runs_have_p_1(test, num_queries):
    values = skewed(num_queries)
    assert compare(values, values, test, 200, 0) == significance.Comparison(0.0, 0.0, 0.0, 1.0)


@pytest.mark.parametrize("test", ["randomisation", "t"])
def test_with_one_query_p_is_1(test):
    assert compare(np.array([1.0]), np.array([0.0]), test, 200, 0).p_value == 1.0


def test_unpaired_or_missing_values_are_refused():
    with pytest.raises(ValueError, match="3 queries against 2"):
        compare(np.zeros(3), np.zeros(2), "t", 100, 0)
    with pytest.raises(ValueError, match="at least one query"):
        mean_interval(np.zeros(0), 100, 0)
