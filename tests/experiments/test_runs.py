"""The reports that a reproduction takes as its planned runs."""

from types import SimpleNamespace as Some

import pytest

from tasks.errors import DataError
from tasks.experiments.compare import check_problems
from tasks.experiments.runs import match_reports
from tasks.settings import ExperimentSettings, RunSettings
from tasks.store import ArtifactRef, Store
from tests.cli.synthetic import write
from tools import ROOT

TINY = RunSettings.read(ROOT / "configs/tiny-cpu.yaml").given()
SYSTEMS = {
    "mu_grpo": {"optimize": {"preset": "mu_grpo"}},
    "turns": {"optimize": {"preset": "mu_grpo"}, "updates_per_rollout": 4},
    "dual": {"optimize": {"preset": "mu_grpo", "objective": {"gate": {"dual_clip": 3.0}}}},
}


def report(store: Store, settings: RunSettings, stages: int = 4, trained_from: int = 0) -> ArtifactRef:
    evaluations = [write(store, "evaluation", {"metrics.json": str(stage)}) for stage in range(stages + 1)]
    page, facts = f"{settings} {stages} {trained_from}", {"trained_from": trained_from} if trained_from else {}
    return write(store, "report", {"page.html": page}, settings, {"evaluations": evaluations}, **facts)


def test_a_planned_run_is_found_by_all_its_settings_and_by_its_number_of_stages(store: Store) -> None:
    experiment = ExperimentSettings.parse({"models": {"tiny": TINY}, "systems": SYSTEMS, "seeds": [0]})
    planned = {run.system: run for run in experiment.runs(store.ref.uri)}
    dual = report(store, planned["dual"].settings)
    # None of these is a planned run, although they are later than all planned ones.
    report(store, planned["mu_grpo"].settings, stages=1)
    report(store, planned["mu_grpo"].settings, trained_from=2)
    assert match_reports(store, experiment.runs(store.ref.uri)) == [None, None, dual]
    expected = [dual if name == "dual" else report(store, run.settings) for name, run in planned.items()]
    assert match_reports(store, list(planned.values())) == expected


def test_a_planned_source_without_a_commit_is_found_with_any(store: Store) -> None:
    source = {"hub": "someone/problems", "files": ["test.jsonl"], "prompt": "question", "answer": "answer"}
    model = {**TINY, "evaluate": {"benchmarks": [{"name": "asked", "source": source}], "max_new_tokens": 8}}
    experiment = ExperimentSettings.parse({"models": {"tiny": model}, "systems": SYSTEMS, "seeds": [0]})
    run = experiment.runs(store.ref.uri)[0]
    (benchmark,) = run.settings.evaluate.benchmarks
    resolved = benchmark.model_copy(update={"source": benchmark.source.model_copy(update={"commit": "0" * 40})})
    opened = run.settings.evaluate.model_copy(update={"benchmarks": [resolved]})
    ref = report(store, run.settings.model_copy(update={"evaluate": opened}))
    assert match_reports(store, [run]) == [ref]


def test_only_models_may_have_other_templates() -> None:
    def run(model: str, prompts: str, problems: int = 30) -> Some:
        one = Some(benchmark="aime", prompts=prompts, problems=problems)
        return Some(model=model, name=model, history=Some(evaluated=[Some(evaluations=[one])]))

    check_problems([run("base", "plain"), run("tuned", "chat")])
    for other in (run("base", "chat"), run("tuned", "chat", 29)):
        with pytest.raises(DataError, match="has other problems in"):
            check_problems([run("base", "plain"), other])
