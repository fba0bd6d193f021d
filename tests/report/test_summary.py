import json

import pytest

from tasks.artifacts import Store
from tasks.cli.runs import latest_runs
from tasks.errors import DataError
from tasks.report.compare import compare, comparison_markdown
from tasks.report.history import lineage, load_history
from tasks.report.ledger import make_ledger
from tasks.report.summary import Execution, RunSummary, execution_since, make_summary, summarise
from tests.report.synthetic import make_run

COMMANDS = ["mu-grpo inspect --store runs --stage 1", "make compare"]


def summary_of(run) -> RunSummary:
    history = load_history(run.store, run.evaluations)
    return make_summary(history, make_ledger(history))


def test_round_trip_through_json(mu_grpo, mu_grpo_report):
    summary = summarise(mu_grpo.store, mu_grpo_report, COMMANDS)
    again = RunSummary.model_validate_json(summary.model_dump_json())
    assert again == summary
    assert type(again.rows[1].updates) is int
    assert type(again.wall_clock) is float
    # Flyte's protobuf has no integers.
    floats = json.loads(summary.model_dump_json(), parse_int=float)
    assert type(RunSummary.model_validate(floats).rows[1].updates) is int


def test_artifact_holds_no_path(mu_grpo, mu_grpo_report):
    folder = mu_grpo.store.path(mu_grpo_report)
    assert set(json.loads((folder / "summary.json").read_text())) == set(RunSummary.model_fields) - {
        "execution",
        "report",
        "next_commands",
    }
    assert str(mu_grpo.store.root) not in (folder / "report.html").read_text()
    assert mu_grpo.store.manifest(mu_grpo_report).parents["evaluations"] == mu_grpo.evaluations
    assert len(list((folder / "figures").glob("*.svg"))) == 17


def test_text_ends_with_the_report_and_the_next_commands(mu_grpo, mu_grpo_report):
    text = str(summarise(mu_grpo.store, mu_grpo_report, COMMANDS))
    *table, report, first, second = text.splitlines()
    assert report.startswith("report  /")
    assert report.endswith("/report.html")
    assert first == "next    mu-grpo inspect --store runs --stage 1"
    assert second == "        make compare"
    assert max(len(line) for line in table) <= 80
    assert "\x1b" not in text
    assert "stage 4 128 83.6 % 80.6 to 86.6 87.6 % 87.7 % 24.4" in [" ".join(line.split()) for line in table]
    assert "mu_grpo, mu 32, seed 0: 128 updates in 3 min 49 s" in text
    assert "optimize 62.0 s" in text


def test_many_stages_are_shortened(tmp_path):
    lines = str(summary_of(make_run(tmp_path, 20, updates_per_stage=2, updates_per_rollout=2))).splitlines()
    assert len(lines) < 24
    assert max(len(line) for line in lines) <= 80
    assert [line for line in lines if line.strip() == "..."]


def test_base_alone(base_only):
    assert "base, seed 0: 0 updates in 43.5 s" in str(summary_of(base_only))


def test_compare_two_runs(mu_grpo, grpo):
    text = compare([summary_of(mu_grpo), summary_of(grpo)])
    rows = {line.split("  ")[0].strip(): line.split() for line in text.splitlines()}
    assert max(len(line) for line in text.splitlines()) <= 80
    assert rows["avg@4, 128 updates"][-4:] == ["83.6", "%", "83.6", "%"]
    assert rows["switch"][1:] == ["–", "24.0", "s"]  # noqa: RUF001
    assert rows["training speed"][-2:] == ["1.00x", "0.81x"]
    assert "mu_grpo, mu 32" in text
    assert "grpo, mu 4" in text


def test_compare_meets_at_equal_updates(mu_grpo, tmp_path):
    other = make_run(tmp_path, 2, updates_per_stage=64, updates_per_rollout=64)
    text = compare([summary_of(mu_grpo), summary_of(other)])
    line = next(line for line in text.splitlines() if "96 updates" in line)
    assert line.split()[-2:] == ["%", "–"]  # noqa: RUF001


def test_runs_of_one_seed_and_two_models_are_told_apart(mu_grpo, grpo):
    one, beside = summary_of(mu_grpo), summary_of(grpo)
    assert one.base_policy == mu_grpo.store.manifest(mu_grpo.evaluations[0]).parents["policy"][0].digest
    assert "base policy" not in compare([one, beside])
    other = one.model_copy(update={"base_policy": "0123456789abcdef"})
    rows = {line.split("  ")[0].strip(): line.split() for line in compare([one, other]).splitlines()}
    assert rows["base policy"][-2:] == [one.base_policy[:8], "01234567"]
    with pytest.raises(DataError, match="Mu-GRPO has 2 runs of seed 0, which began with different policies"):
        comparison_markdown({"Mu-GRPO": [one, other]})


def test_the_latest_run_of_every_model_is_found(mu_grpo, tmp_path):
    store, summary = Store.open(tmp_path), summary_of(mu_grpo)
    for base, wall_clock in (("a", 1.0), ("b", 2.0), ("a", 3.0)):
        made = summary.model_copy(update={"base_policy": base, "wall_clock": wall_clock})
        with store.write("report", settings={}, parents={}, seed=0) as draft:
            draft.facts.update(algorithm=summary.algorithm)
            (draft.path / "summary.json").write_text(made.model_dump_json())
    assert [(run.base_policy, run.wall_clock) for run in latest_runs(store)] == [("a", 3.0), ("b", 2.0)]


def test_a_report_that_was_rendered_again_is_one_run(mu_grpo, tmp_path):
    store, summary = Store.open(tmp_path), summary_of(mu_grpo)
    with store.write("rollouts", settings={}, parents={}, seed=0) as evaluation:
        (evaluation.path / "some").write_text("thing")
    for base in ("", "a"):
        with store.write("report", settings={}, parents={"evaluations": [evaluation.ref]}, seed=0) as draft:
            draft.facts.update(algorithm=summary.algorithm)
            (draft.path / "summary.json").write_text(summary.model_copy(update={"base_policy": base}).model_dump_json())
    assert [run.base_policy for run in latest_runs(store)] == ["a"]


def test_compare_needs_two(mu_grpo):
    with pytest.raises(DataError, match="two or more"):
        compare([summary_of(mu_grpo)])


def test_markdown_over_seeds(mu_grpo, grpo, tmp_path):
    second = make_run(tmp_path, 4, seed=1)
    lines = comparison_markdown(
        {"Mu-GRPO": [summary_of(mu_grpo), summary_of(second)], "GRPO": [summary_of(grpo)]}
    ).splitlines()
    assert lines[:3] == ["| | Mu-GRPO | GRPO |", "|---|---:|---:|", "| seeds | 0, 1 | 0 |"]
    assert "| avg@4, base | 32.2 % (32.0 % to 32.4 %) | 32.0 % |" in lines
    assert "| switch | – | 24.0 s |" in lines  # noqa: RUF001
    assert len({line.count("|") for line in lines}) == 1


def test_markdown_needs_runs():
    with pytest.raises(DataError, match="at least one run"):
        comparison_markdown({"GRPO": []})


def test_an_execution_tells_what_it_made(mu_grpo, mu_grpo_report):
    artifacts = len(lineage(mu_grpo.store, [mu_grpo_report]))
    report = mu_grpo.store.manifest(mu_grpo_report)
    since_report = execution_since(mu_grpo.store, mu_grpo_report, report.timings.started)
    assert (since_report.artifacts, since_report.made) == (artifacts, 1)
    nothing = execution_since(mu_grpo.store, mu_grpo_report, report.timings.finished + 1)
    assert nothing.made == 0
    everything = execution_since(mu_grpo.store, mu_grpo_report, 0.0)
    assert everything.made == artifacts > 10
    summary = summarise(mu_grpo.store, mu_grpo_report, []).model_copy(
        update={"execution": Execution(artifacts=35, made=2, seconds=4.0)}
    )
    assert "now     2 artifacts made, 33 from the cache, in 4.0 s" in str(summary).splitlines()
