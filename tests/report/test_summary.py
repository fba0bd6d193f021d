import json
import re
import time
from unittest import mock

import pytest

from tasks.cli.main import compare as compare_command
from tasks.cli.runs import all_runs
from tasks.errors import DataError
from tasks.evaluate.statistics import Interval
from tasks.formats import DASH
from tasks.process.provenance import EXECUTION
from tasks.report.compare import ComparedRun, compare, different_settings
from tasks.report.history import Evaluation
from tasks.report.ledger import make_ledger
from tasks.report.summary import RunSummary, make_summary, summarise, work_of_execution
from tasks.report.tables import text_table
from tasks.store import ArtifactRef, Store
from tasks.store.lineage import ancestry
from tests.cli.synthetic import write
from tests.report.synthetic import history_of, make_run
from tools.docs.results import comparison_markdown, results_page

COMMANDS = ["mu-grpo inspect --store runs --stage 1", "mu-grpo compare --store runs"]


def summary_of(run) -> RunSummary:
    history = history_of(run)
    return make_summary(history, make_ledger(history))


def test_a_summary_comes_back_whole_from_flytes_protobuf_which_has_no_integers(mu_grpo, mu_grpo_report):
    summary = summarise(mu_grpo.store, mu_grpo_report, COMMANDS)
    again = RunSummary.model_validate(json.loads(summary.model_dump_json(), parse_int=float))
    assert again == summary
    assert type(again.evaluated[1].updates) is int


def test_artifact_holds_no_path(mu_grpo, mu_grpo_report):
    folder = mu_grpo.store.path(mu_grpo_report)
    not_stored = {"later_updates", "execution", "report", "next_commands"}
    assert set(json.loads((folder / "summary.json").read_text())) == set(RunSummary.model_fields) - not_stored
    assert str(mu_grpo.store.root) not in (folder / "report.html").read_text()
    assert mu_grpo.store.manifest(mu_grpo_report).parents["evaluations"] == mu_grpo.evaluations


def test_a_summary_of_another_version_is_made_again(tmp_path):
    run = make_run(tmp_path, 1)
    report = write(run.store, "report", {"summary.json": '{"rows": []}'}, parents={"evaluations": run.evaluations})
    made = summarise(run.store, report, []).model_copy(update={"gpu_seconds": {"x": 9e3}, "later_updates": 5})
    assert (made.evaluated, len(re.findall("37 updates|2.50 GPU-hours", str(made)))) == (summary_of(run).evaluated, 2)


def compared(summary: RunSummary, **settings: object) -> ComparedRun:
    return ComparedRun(summary, settings, "report/0123abcd", 1e9)


def cells(text: str) -> dict[str, list[str]]:
    """Rows of a comparison by their names."""
    rows = (re.split(r" {2,}", line.strip()) for line in text.splitlines() if line.strip())
    return {name: values for name, *values in rows}


def test_compare_two_runs(mu_grpo, grpo, tmp_path):
    rows = cells(compare([compared(summary_of(mu_grpo)), compared(summary_of(grpo))]))
    assert rows["avg@4, 128 updates"] == ["82.5 %", "82.5 %"]
    assert rows["switch"] == ["–", "24.0 s"]  # noqa: RUF001
    assert rows["training speed"] == ["1.00x", "0.80x"]
    longer = summary_of(make_run(tmp_path, 2, updates_per_stage=64, updates_per_rollout=64))
    rewarded = {"evaluated": [one.model_copy(update={"reward": 0.5}) for one in longer.evaluated]}
    rows = cells(compare([compared(summary_of(mu_grpo)), compared(longer.model_copy(update=rewarded))]))
    assert rows["avg@4, 96 updates"][1:] == [DASH]
    assert rows["reward, 64 updates"] == [DASH, "0.500"]
    shorter = cells(compare([compared(summary_of(mu_grpo)), compared(summary_of(make_run(tmp_path / "one", 1)))]))
    assert shorter["training speed"] == ["1.00x", DASH]


def test_a_sweep_has_a_column_per_run_headed_by_the_settings_that_differ(mu_grpo):
    summary = summary_of(mu_grpo)
    rates = [1e-6, 1.0000001e-6, 1e-5, 3e-5]
    same = {"seed": 0, "optimize.preset": "mu_grpo"}
    runs = [
        compared(summary, **same, **{"optimize.learning_rate": rate, "optimize.max_grad_norm": norm})
        for rate in rates
        for norm in (1.0, 2.0)
    ]
    rows = cells(compare(runs))
    assert rows["optimize.learning_rate"] == [str(rate) for rate in rates for _ in range(2)]
    assert rows["optimize.max_grad_norm"] == ["1", "2"] * 4
    assert different_settings(runs).keys() == {"optimize.learning_rate", "optimize.max_grad_norm"}
    with mock.patch("tasks.report.compare.text_table", wraps=text_table) as drawn:
        compare(runs * 5, 80)
    assert max(len(call.args[0]) for call in drawn.call_args_list) < 14


def test_templates_and_benchmarks_are_compared_as_they_are_written(mu_grpo):
    templates = ["{prompt}", "[INST] {prompt} [/INST]", "[think]{prompt} :cat:"]
    rows = cells(compare([compared(summary_of(mu_grpo), **{"prompts.template": one}) for one in templates]))
    assert rows["prompts.template"] == templates
    benchmarks = [[{"name": "a", "source": {"path": path, "files": []}, "date": None}] for path in ("b", "c")]
    rows = cells(compare([compared(summary_of(mu_grpo), **{"evaluate.benchmarks": one}) for one in benchmarks]))
    assert rows["evaluate.benchmarks"] == ["name=a source.path=b", "name=a source.path=c"]


def test_runs_that_differ_in_nothing_are_told_apart_by_their_end(mu_grpo):
    summary = summary_of(mu_grpo)
    equal = [ComparedRun(summary, {"a": 1}, f"report/{name}", at) for name, at in (("x", 1e9), ("y", 2e9))]
    assert different_settings(equal).keys() == {"finished"}
    assert different_settings([*equal, ComparedRun(summary, {"a": 2}, "report/z", 3e9)]).keys() == {"a", "finished"}
    other_seed = ComparedRun(summary, {"a": 1, "seed": 1}, "report/z", 3e9)
    assert different_settings([equal[0], other_seed]).keys() == {"finished"}


def benchmark(
    name: str, accuracy: float, k: int = 4, problems: int = 100, digest: str = "", reward: float | None = None
) -> Evaluation:
    of = {"benchmark": name, "problems": problems, "samples_per_problem": k, "reward": reward}
    prompts = ArtifactRef(kind="prompts", digest=digest)
    return Evaluation.model_construct(**of, prompts=prompts, accuracy=Interval(accuracy, 0, 1))


def on(summary: RunSummary, *benchmarks: Evaluation) -> ComparedRun:
    """The run as if it had been measured on these."""
    mean = Interval(sum(one.accuracy.value for one in benchmarks) / len(benchmarks), 0, 1)
    first = {name: getattr(benchmarks[0], name) for name in ("samples_per_problem", "reward")}
    update = {"evaluations": list(benchmarks), "accuracy": mean, **first}
    evaluated = [policy.model_copy(update=update) for policy in summary.evaluated]
    return compared(summary.model_copy(update={"evaluated": evaluated}))


def test_runs_on_other_problems_have_rows_of_their_own(mu_grpo):
    summary = summary_of(mu_grpo)
    held_out, mine = benchmark("held_out", 0.25), benchmark("mine", 0.0)
    rewarded = [benchmark("held_out", 0.25, reward=-0.5), benchmark("mine", 0.0, reward=-0.5)]
    rows = cells(compare([on(summary, held_out), on(summary, mine), on(summary, *rewarded)]))
    assert rows["held_out, avg@4, base"] == ["25.0 %", DASH, DASH]
    assert rows["mine, avg@4, base"] == [DASH, "0.0 %", DASH]
    assert rows["held_out + mine, mean, base"] == [DASH, DASH, "12.5 %"]
    assert rows["held_out, at the end"] == ["25.0 %", DASH, "25.0 %"]
    assert rows["mine, at the end"] == [DASH, "0.0 %", "0.0 %"]
    for name in ("held_out + mine, mean reward, base", "held_out, reward at the end", "mine, reward at the end"):
        assert rows[name] == [DASH, DASH, "-0.500"]
    assert not any(name.startswith("avg@4") for name in rows)


@pytest.mark.parametrize(
    ("other", "names"),
    [
        ({"k": 8}, ["held_out avg@4", "held_out avg@8"]),
        ({"problems": 50}, ["held_out avg@4 of 100", "held_out avg@4 of 50"]),
        ({"digest": "bbbbbbbbb"}, ["held_out avg@4 of 100 aaaaaa", "held_out avg@4 of 100 bbbbbb"]),
    ],
)
def test_a_benchmark_of_the_same_name_with_other_problems_is_another_one(mu_grpo, other, names):
    summary = summary_of(mu_grpo)
    one = benchmark("held_out", 0.25, digest="aaaaaaaaa")
    two = benchmark("held_out", 0.5, **({"digest": "aaaaaaaaa"} | other))
    rows = cells(compare([on(summary, one), on(summary, two)]))
    for name, values in zip(names, (["25.0 %", "–"], ["–", "50.0 %"]), strict=True):  # noqa: RUF001
        assert rows[f"{name}, base"] == values


def test_runs_of_one_seed_and_two_models_are_told_apart(mu_grpo, grpo):
    one, beside = summary_of(mu_grpo), summary_of(grpo)
    assert [one.base_policy] == mu_grpo.store.manifest(mu_grpo.evaluations[0]).parents["policy"]
    assert "base policy" not in compare([compared(one), compared(beside)])
    base = one.evaluated[0].model_copy(update={"policy": ArtifactRef(kind="policy", digest="0123456789abcdef")})
    other = one.model_copy(update={"evaluated": [base, *one.evaluated[1:]]})
    assert cells(compare([compared(one), compared(other)]))["base policy"] == [one.base_policy.digest[:8], "01234567"]
    with pytest.raises(DataError, match="Mu-GRPO has 2 runs of seed 0, which began with different policies"):
        comparison_markdown({"Mu-GRPO": [one, other]})


def reported(
    store: Store, summary: RunSummary, settings: dict, evaluations: list[ArtifactRef], seed: int = 0
) -> ArtifactRef:
    files = {"summary.json": summary.model_dump_json(), "settings.json": json.dumps(settings)}
    return write(store, "report", files, settings, {"evaluations": evaluations}, seed, algorithm="mu_grpo")


def test_runs_differ_by_settings_or_evaluations_and_a_report_rendered_again_is_the_same_run(mu_grpo, tmp_path):
    store, summary = Store.open(tmp_path), summary_of(mu_grpo)
    one, other = ([ArtifactRef(kind="evaluation", digest=letter * 64)] for letter in "ab")
    low, high = ({"optimize": {"preset": "mu_grpo", "max_grad_norm": norm}} for norm in (1.0, 2.0))
    made = [
        reported(store, summary.model_copy(update={"wall_clock": float(place)}), *differing)
        for place, differing in enumerate([(low, one), (high, one), (low, other), (low, one)])
    ]
    runs = all_runs(store)
    assert {run.report for run in runs} == {str(ref) for ref in made[1:]}
    assert "mu_grpo, mu 32, optimize.max_grad_norm 2" in results_page(runs)


def test_a_run_that_is_alone_is_compared_with_none(mu_grpo, tmp_path):
    store, summary, settings = Store.open(tmp_path), summary_of(mu_grpo), {"optimize": {"preset": "mu_grpo"}}
    evaluations = [ArtifactRef(kind="evaluation", digest="a" * 64)]
    reported(store, summary, settings, evaluations)
    with pytest.raises(DataError, match=r"only one finished run in this store; two are needed\. Start another"):
        compare_command(str(tmp_path))
    reported(store, summary.model_copy(update={"wall_clock": 1.0}), settings, evaluations, seed=1)
    with pytest.raises(DataError, match=r"only one finished run with seed 1 in this store; .* or leave --seed out"):
        compare_command(str(tmp_path), seed=1)


def test_markdown_over_seeds(mu_grpo, grpo, tmp_path):
    second = make_run(tmp_path, 4, seed=1)
    arms = {"Mu-GRPO": [summary_of(mu_grpo), summary_of(second)], "GRPO": [summary_of(grpo)]}
    lines = comparison_markdown(arms).splitlines()
    assert lines[:3] == ["| | Mu-GRPO | GRPO |", "|---|---:|---:|", "| seeds | 0, 1 | 0 |"]
    assert "| avg@4, base | 36.3 % (33.8 % to 38.8 %) | 33.8 % |" in lines
    assert "| switch | – | 24.0 s |" in lines  # noqa: RUF001
    assert len({line.count("|") for line in lines}) == 1


def test_the_summary_says_what_the_execution_made(run, monkeypatch):
    """Two executions at once: each counts its own, and neither what it waited for as work."""
    run.clock.now = time.time()
    started = run.clock.now
    with run.process("first"):
        run.base()
    with run.process("second", waits=[(started + 1.0, started + 30.0)]):
        run.train()
    with run.process("first"):
        run.evaluate()
        report = reported(run.store, summary_of(run), {}, run.evaluations)
    everything = len(ancestry(run.store, [report]).manifests)
    monkeypatch.setenv(EXECUTION, "second")
    second = work_of_execution(run.store, report, started)
    assert (second.artifacts, second.made) == (everything, 5)  # prompts, two shards, verdicts, a policy
    assert (second.waited, second.seconds > 0) == (pytest.approx(29.0), True)
    assert "29.0 s of it waiting for another run" in str(second)
    monkeypatch.setenv(EXECUTION, "first")
    first = work_of_execution(run.store, report, started)
    assert (first.artifacts, first.made, first.waited) == (everything, everything - 5, 0.0)
    assert work_of_execution(run.store, report, run.clock.now + 1).made == 0
    monkeypatch.setenv("FLYTE_INTERNAL_EXECUTION_ID", "second")
    assert work_of_execution(run.store, report, started).made == 5
    with run.process("third"):  # It repeats the step of the last report.
        assert reported(run.store, summary_of(run), {}, run.evaluations) == report
    monkeypatch.setenv("FLYTE_INTERNAL_EXECUTION_ID", "third")
    monkeypatch.setattr("tasks.report.summary.uncommitted_change", lambda: ("tasks/train/objective.py", started + 1))
    third = work_of_execution(run.store, report, started)
    assert third.outdated.startswith("tasks/train/objective.py was changed")
    assert str(third).startswith(f"{everything} artifacts, 0 of them new, in ")
