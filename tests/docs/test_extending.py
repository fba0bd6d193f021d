"""What docs/extending.md shows works from outside of the package, as the page shows it."""

import json
import re
from pathlib import Path

import pytest
import yaml

from tasks.cli.algorithms import algorithms_table
from tasks.data.benchmarks import prepare_benchmark
from tasks.settings import PRESETS, EvaluateSettings, OperationSettings, PromptsSettings, RunSettings, VerifySettings
from tasks.settings.evaluate import measurements
from tasks.store import Store
from tasks.store.tables import read_table
from tasks.train.objective import objective
from tests.train.batches import bounds_of
from tests.train.test_objective import batch_of, close
from tools.docs import DOCS


def shown(section: str, language: str) -> str:
    """The first code of a language in a section of the page."""
    page = (DOCS / "extending.md").read_text(encoding="utf-8")
    return re.search(rf"```{language}\n(.*?)```", page.partition(f"## {section}\n")[2], re.DOTALL)[1]


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> str:
    """The preset of the page, as long as a test takes."""
    before = dict(PRESETS)
    exec(compile(shown("A preset", "python"), "my_preset.py", "exec"), {})
    (name,) = set(PRESETS) - set(before)
    row = PRESETS.pop(name)
    monkeypatch.setitem(PRESETS, name, row)
    return name


def test_a_preset_of_ones_own_trains_and_equals_the_fields_of_the_page(narrow: str) -> None:
    config = DOCS.parent / "configs/tiny-cpu.yaml"
    run = RunSettings.read(config, f"optimize.preset={narrow} optimize.responses_per_update=128")
    batch = batch_of([(1.0, [0.5, 1.05, 1.15]), (-1.0, [0.5, 1.05, 4.0])])
    settings = run.optimize.objective
    got = objective(batch, settings, 8, bounds_of([batch], settings))
    assert got.coefficient_T.tolist() == close([0.5, 1.05, 0, 0, -1.05, 0])
    assert int(got.denominator) == 2 * 8
    assert narrow in list(algorithms_table().columns[0].cells)
    fields = yaml.safe_load(shown("A preset", "yaml"))["optimize"]
    own = run.given()
    other = RunSettings.merged(own | {"optimize": {**own["optimize"], "objective": {}, **fields}}, "")
    assert other.optimize.objective == RunSettings.merged(own, "").optimize.objective


def test_a_benchmark_of_ones_own_is_evaluated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    row = json.loads(shown("A benchmark", "json"))
    Path("sums.jsonl").write_text(json.dumps(row) + "\n")
    evaluate = EvaluateSettings.parse(yaml.safe_load(shown("A benchmark", "yaml"))["evaluate"])
    prompts = PromptsSettings(path="unused.jsonl", prompts_per_stage=1)
    held_out, own = measurements(evaluate, prompts, VerifySettings(workers=1), None)
    assert (held_out.benchmark.name, own.benchmark.name, own.evaluation.samples_per_problem) == ("held_out", "sums", 8)
    store = Store.open(tmp_path / "store")
    problems = prepare_benchmark(store, own.benchmark, own.verify, "", OperationSettings())
    (problem,) = read_table(store.path(problems) / "prompts.parquet").to_pylist()
    assert (problem["prompt"], problem["answer"]) == (row["question"], row["sum"])
