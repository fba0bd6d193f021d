"""Regressions of benchmarks, on values that nobody measured."""

from tools.benchmarks.measurement import Measurement, Ratio


def measured() -> Measurement:
    ways = {"ours": [3000.0, 4000.0, 5000.0], "theirs": [2.0, 2.0, 2.5]}
    bars = [Ratio("ours", "theirs", [1.4, 1.5, 1.7], 1.6), Ratio("ours", "1 s", [0.5, 0.5, 0.6], 1.0, at_most=True)]
    return Measurement("one", "Some work.", "x/s", ways, bars)


def test_a_ratio_regresses_against_its_baseline_and_a_time_against_its_requirement() -> None:
    kept, worse, slower = measured(), measured(), measured()
    worse.ratios[:] = [Ratio("ours", "theirs", [1.4], 1.6), Ratio("ours", "1 s", [0.9], 1.0, at_most=True)]
    assert worse.regressions(kept) == ["one: ours / theirs is 1.4, the baseline is 1.5; allowed: 5 % worse"]
    assert worse.regressions(None) == []
    slower.ratios[:] = [Ratio("ours", "theirs", [1.43], 1.6), Ratio("ours", "1 s", [1.2], 1.0, at_most=True)]
    assert slower.regressions(kept) == ["one: ours / 1 s is 1.2, the baseline is 0.5; required: at most 1"]
    assert slower.regressions(slower) == []
