"""Accuracies and paired tests of a comparison, by worked numbers."""

from types import SimpleNamespace as Some

import numpy as np
import pytest

from tasks.evaluate.statistics import DIFFERENCES, bootstrap_p, draws, holm
from tasks.experiments.compare import accuracy_cells, paired_tests

SOLVED = {
    ("tiny", "mu_grpo", 0): ([1, 1, 1, 0], [1, 0]),
    ("tiny", "mu_grpo", 1): ([1, 1, 0, 0], [0, 0]),
    ("tiny", "grpo", 1): ([0, 1, 0, 0], [1, 0]),
    ("big", "mu_grpo", 0): ([1, 1, 1, 1], [1, 1]),
    ("big", "grpo", 0): ([0, 0, 0, 1], [0, 0]),
}
"""Problems of two benchmarks, each of which stands for 20. Not every seed has both systems."""
ACCURACIES = {
    str(run): {name: np.repeat(values, 20).astype(float) for name, values in zip(("easy", "hard"), both, strict=True)}
    for run, both in SOLVED.items()
}


def run(model: str, system: str, seed: int) -> Some:
    base = [Some(benchmark="easy", accuracy=Some(value=0.25)), Some(benchmark="hard", accuracy=Some(value=seed / 4))]
    history = Some(evaluated=[Some(evaluations=base)])
    return Some(name=str((model, system, seed)), model=model, system=system, seed=seed, history=history)


RUNS = [run(*key) for key in SOLVED]


def test_accuracies_of_every_system() -> None:
    cells = {(one.model, one.system, one.benchmark): one for one in accuracy_cells(RUNS, ACCURACIES)}
    assert len(cells) == 4 * 3
    found = [cells["tiny", "mu_grpo", name] for name in ("easy", "hard", "mean")]
    assert [one.by_seed for one in found] == [[0.75, 0.5], [0.5, 0.0], [0.625, 0.25]]
    assert [one.accuracy.value for one in found] == pytest.approx([0.625, 0.25, 0.4375])
    assert [one.base for one in found] == [0.25, 0.125, 0.1875]
    of_one = {name: {"easy": each["easy"]} for name, each in ACCURACIES.items()}
    assert {one.benchmark for one in accuracy_cells(RUNS, of_one)} == {"easy"}


def test_the_reference_is_compared_with_a_baseline_on_their_common_seeds() -> None:
    tests = paired_tests(RUNS, ACCURACIES, "mu_grpo", ["grpo"], 0.5)
    expected = [
        *(("tiny", "mean", -0.125, True), ("big", "mean", 0.875, False), ("all models", "mean", 0.375, True)),
        *(("tiny", "easy", 0.25, True), ("tiny", "hard", -0.5, False)),
        *(("big", "easy", 0.75, False), ("big", "hard", 1.0, False)),
    ]
    found = [(one.model, one.benchmark, one.difference.value, one.equivalent) for one in tests]
    assert found == [(*names, pytest.approx(value), equal) for *names, value, equal in expected]
    assert all(-1 < one.difference.low < one.difference.value <= one.difference.high <= 1 for one in tests)
    both = [((model, "mu_grpo", seed), (model, "grpo", seed)) for model, seed in (("tiny", 1), ("big", 0))]
    solved = [(ACCURACIES[str(ours)], ACCURACIES[str(theirs)]) for ours, theirs in both]
    differences = [ours[name] - theirs[name] for ours, theirs in solved for name in ("easy", "hard")]
    unadjusted = [bootstrap_p(draws([{"": one[None]}], DIFFERENCES)) for one in differences]
    assert [one.p_bootstrap for one in tests[3:]] == pytest.approx(holm(unadjusted))
    assert (tests[2].cohen_dz, tests[2].rank_biserial) == pytest.approx(
        (0.375 / np.std([-0.125, 0.875], ddof=1), 1 / 3)
    )
