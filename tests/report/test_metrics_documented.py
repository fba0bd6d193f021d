"""docs/metrics.md names every number that a run gives, and only settings that exist."""

import re
from typing import Any

import pytest

from tasks.cli.settings import sections
from tasks.evaluate.metrics import measure
from tasks.report.ledger import ROWS as LEDGER
from tasks.settings import EngineSettings, RunSettings
from tasks.store.tables import EXAMPLES, ROLLOUTS, SAMPLES, VERDICTS
from tasks.train.diagnostics import UpdateStatistics
from tasks.train.results import StageResults
from tasks.verify.step import Tally
from tasks.verify.verdicts import Outcome
from tests.train.small import LONGEST, Small, responses_with, sample_rows, train
from tools import ROOT

PAGE = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
NAMED = set(re.findall(r"`([^`]+)`", PAGE))
SECTIONS = "policy|prompts|rollout|verify|optimize|evaluate"


@pytest.fixture(scope="module")
def rows(small: Small) -> list[dict[str, Any]]:
    """What the trainer notes about two real updates."""
    store, policy = small
    sampled = sample_rows(store.path(policy), [f"{number}+1=" for number in range(8)], LONGEST, EngineSettings())
    return train(small, responses_with(sampled, [0.0, 1.0] * 16), updates=2)[1].rows


def test_every_column_of_a_row_is_named(rows):
    columns = set(rows[0])
    assert {"staleness", "grad_norm", "gate_high", "ess"} <= columns
    assert set(UpdateStatistics().row()) < columns
    assert columns - NAMED == set()


def test_every_number_of_stages_evaluations_and_tables_is_documented():
    sample = {"sample_index": 0, "outcome": "correct", "shows_working": True, "level": 2, "response_tokens": 5}
    sample |= {"finish_reason": "stop"}
    evaluation = measure([sample, {**sample, "sample_index": -1}], [0], 1, "held_out")
    stage = StageResults(1, 1).facts()
    assert "logp_mismatch" in stage
    outcomes = list(map(str, Outcome))
    tables = (table.names for table in (EXAMPLES, ROLLOUTS, VERDICTS, SAMPLES))
    for numbers in (stage, Tally().facts(), evaluation, evaluation["accuracy"], outcomes, *tables, LEDGER):
        assert set(numbers) - NAMED == set()


def test_settings_that_are_named_exist():
    settings = {name for name in NAMED if re.fullmatch(rf"(?:{SECTIONS})\.[a-z0-9_.]+", name)}
    there = {entry.path for section in sections(RunSettings) for entry in section.entries}
    assert {"optimize.objective.gate.high", "verify.deadline_seconds"} <= settings <= there
