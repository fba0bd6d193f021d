"""docs/metrics.md names every number that a run gives, and only settings that exist."""

import re
from types import NoneType, UnionType
from typing import Any, get_args

import pytest

from tasks.evaluate.metrics import measure
from tasks.report.figures import all_figures
from tasks.report.history import histogram_columns, number_columns
from tasks.report.ledger import ROWS as LEDGER
from tasks.settings import OptimizeSettings, RunSettings, Settings
from tasks.settings.base import Kinds
from tasks.store.tables import EXAMPLES, ROLLOUTS, VERDICTS, metrics_schema, to_table
from tasks.train.batches import collect, plan_batches
from tasks.train.diagnostics import UpdateStatistics
from tasks.train.outcome import Outcome as Trained
from tasks.train.stage import load_trainer
from tasks.verify.step import Tally
from tasks.verify.verdicts import Outcome
from tools import ROOT

PAGE = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
NAMED = set(re.findall(r"`([^`]+)`", PAGE))


@pytest.fixture(scope="module")
def rows(small) -> list[dict[str, Any]]:
    """What the trainer notes about two real updates."""
    store, policy = small
    sampled = [
        {
            "prompt_id": str(index // 4),
            "sample_index": index % 4,
            "prompt_token_ids": [3, 4, 5],
            "response_token_ids": [6 + index % 5, 7, 8],
            "engine_logp": [-3.0, -3.0, -3.0],
            "finish_reason": "stop",
            "policy": policy.digest,
        }
        for index in range(16)
    ]
    judged = [{**row, "reward": float(index % 2)} for index, row in enumerate(sampled)]
    keys = ("prompt_id", "sample_index", "reward")
    verdicts = to_table([{key: row[key] for key in keys} for row in judged], VERDICTS)
    responses = collect([to_table(sampled, ROLLOUTS)], [verdicts], 4)
    settings = OptimizeSettings(preset="mu_grpo", responses_per_update=8, learning_rate=1e-3, max_logp_mismatch=100.0)
    trainer = load_trainer(store.path(policy), settings, 3, 0)
    return trainer.train(responses, plan_batches(responses, 8, (0, 0)), 0).rows


def test_every_column_of_a_row_is_named(rows):
    columns = set(rows[0])
    assert {"staleness", "grad_norm", "gate_high", "ess"} <= columns
    assert set(UpdateStatistics().row()) < columns
    assert columns - NAMED == set()


def test_columns_of_other_tables_are_named():
    assert set(EXAMPLES.names) - NAMED == set()
    assert set(LEDGER) - NAMED == set()


def test_figures_show_columns_that_a_row_has(rows):
    panels = [panel for figure in all_figures().values() for panel in figure.panels]
    curves = [curve for panel in panels for curve in panel.curves if not curve.evaluated]
    shown = {name for curve in curves for name in (curve.column, curve.low, curve.high)}
    assert shown - {""} < set(rows[0])


def test_the_report_reads_every_column_of_a_row(rows):
    table = to_table(rows, metrics_schema(list(rows[0])))
    numbers, histograms = number_columns(table), histogram_columns(table)
    assert {*numbers, *histograms} == set(rows[0])
    assert numbers["staleness"].tolist() == [0.0, 1.0]
    assert histograms["advantage_histogram"].sum(axis=1).tolist() == numbers["tokens"].tolist() == [24.0, 24.0]


def test_numbers_of_stages_rollouts_and_evaluations_are_named():
    sample = {"sample_index": 0, "outcome": "correct", "shows_working": True, "level": 2, "response_tokens": 5}
    evaluation = measure(
        [{**sample, "finish_reason": "stop"}, {**sample, "finish_reason": "stop", "sample_index": -1}],
        [0],
        1,
        "held_out",
    )
    stage = Trained(1, mismatches=[0.0]).facts()
    assert "logp_mismatch" in stage
    for numbers in (stage, Tally().facts(), evaluation, evaluation["accuracy"], list(map(str, Outcome))):
        assert set(numbers) - NAMED == set()


def test_settings_that_are_named_exist():
    sections = "policy|prompts|rollout|verify|optimize|evaluate"
    settings = {name for name in NAMED if re.fullmatch(rf"(?:{sections})\.[a-z0-9_.]+", name)}
    assert {"optimize.objective.gate.high", "verify.deadline_seconds"} <= settings
    for name in settings:
        owner: Any = RunSettings
        for part in name.split("."):
            fields = _fields(owner)
            assert part in fields, name
            owner = _inside(fields[part].annotation)


def _fields(owner: type[Settings]) -> dict[str, Any]:
    """The fields of settings, and of every kind of them."""
    leaves = owner.leaves() if issubclass(owner, Kinds) else [owner]
    return {name: one for kind in leaves for name, one in kind.model_fields.items()}


def _inside(annotation: Any) -> Any:
    """The settings in ``Settings | None``."""
    if isinstance(annotation, UnionType):
        annotation = next(one for one in get_args(annotation) if one is not NoneType)
    return annotation if isinstance(annotation, type) and issubclass(annotation, Settings) else Settings
