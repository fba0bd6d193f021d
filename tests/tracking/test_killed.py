"""A process that is killed and one that goes on: one run in the tracker, every number once, and no key anywhere."""

import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from tasks.store import ArtifactRef, Store
from tasks.store.tables import read_table
from tasks.train.stage import optimize_stage
from tests.prepared import IN_PARTS, OPTIMIZE, PROMPTS, Small, prepare_held_out, prepare_verdicts
from tests.tracking.test_tracking import KEY, Shown, copy_policy, expected, in_tensorboard, in_wandb, messages, rounded
from tools.forked import run

KILLED_IN = (2, 4)
"""The updates of the kills: before a state was saved, and after one and an update that is lost."""
LONGER = PROMPTS.model_copy(update={"prompts_per_stage": 32})


@dataclass(frozen=True)
class Finished:
    """What processes made one after the other: the last one goes on to the end, the others were killed in an update."""

    store: Store
    policy: ArtifactRef
    output: str
    home: Path

    @property
    def updates(self) -> Shown:
        return expected(self.store, self.policy)

    @property
    def accuracies(self) -> dict[int, float]:
        """The accuracy by the updates of the policy."""
        found = {}
        for one in self.store.manifests("evaluation"):
            (policy,) = one.parents["policy"]
            found[int(self.store.manifest(policy).facts["updates"])] = float(one.facts["accuracy"])
        return found


def run_processes(kind: str, learner: Small, folder: Path) -> Finished:
    store, home = Store.open(folder / "store"), folder / "home"
    home.mkdir()
    policy = copy_policy(*learner, store)
    rollouts, verdicts = prepare_verdicts(store, policy, LONGER, IN_PARTS)
    named = [str(ref) for ref in (policy, prepare_held_out(store, PROMPTS, 6), verdicts, *rollouts)]
    wandb = {"WANDB_API_KEY": KEY, "WANDB_MODE": "offline"}
    environment = {**os.environ, **wandb, "HOME": str(home), "MU_GRPO_LOG_LEVEL": "debug"}
    output = ""
    for kill in (*KILLED_IN, 0):
        done = run(["-m", "tests.tracking.processes", str(store.root), kind, str(kill), *named], environment)
        output += done.stdout + done.stderr
        assert done.returncode == (-9 if kill else 0), output
    digest = output.rsplit("loaded:", 1)[0].splitlines()[-1].split()[0]
    return Finished(store, ArtifactRef(kind="policy", digest=digest), output, home)


@pytest.fixture(scope="module")
def with_wandb(learner: Small, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    return run_processes("wandb", learner, tmp_path_factory.mktemp("wandb"))


@pytest.fixture(scope="module")
def with_tensorboard(learner: Small, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    return run_processes("tensorboard", learner, tmp_path_factory.mktemp("tensorboard"))


def test_the_policy_is_the_same_with_either_tracker_and_without(
    with_wandb: Finished, with_tensorboard: Finished, learner: Small, store: Store
) -> None:
    policy = copy_policy(*learner, store)
    rollouts, verdicts = prepare_verdicts(store, policy, LONGER, IN_PARTS)
    assert optimize_stage(store, OPTIMIZE, policy, policy, rollouts, verdicts, 0, 0) == with_wandb.policy
    assert with_wandb.policy == with_tensorboard.policy
    assert not (store.root / "tracking").exists()


def optimize_rows(shown: Shown) -> Shown:
    return Shown({entry: times for entry, times in shown.items() if entry[0].startswith("optimize/")})


def accuracies_in(shown: Shown) -> dict[int, float]:
    return {update: value for tag, update, value in shown if tag == "evaluate/held_out/accuracy"}


def test_tensorboard_has_every_number_of_every_process_once(with_tensorboard: Finished) -> None:
    shown = in_tensorboard(with_tensorboard.store.root / "tracking/tensorboard/a-run")
    assert optimize_rows(shown) == rounded(with_tensorboard.updates)
    assert accuracies_in(shown) == pytest.approx(with_tensorboard.accuracies)
    assert set(with_tensorboard.accuracies) == {0, 8}


def test_wandb_has_no_number_twice_and_all_after_the_last_kill(with_wandb: Finished) -> None:
    """Numbers that a killed process had handed over but not written are lost, and not shown again."""
    shown = in_wandb(with_wandb.store.root / "tracking/wandb")
    assert set(shown.values()) == {1}
    updates = optimize_rows(shown)
    assert updates <= with_wandb.updates
    later = {entry for entry in with_wandb.updates if entry[1] >= KILLED_IN[-1]}
    assert later <= set(updates)
    assert accuracies_in(shown) == pytest.approx(with_wandb.accuracies)


def test_all_parts_are_one_run_of_wandb(with_wandb: Finished) -> None:
    files = list((with_wandb.store.root / "tracking/wandb").rglob("*.wandb"))
    assert len(files) == len(KILLED_IN) + 3, "updates before and after the kills, and two evaluations"
    runs = {message.run.run_id for file in files for message in messages(file) if message.HasField("run")}
    assert runs == {"a-run"}


@pytest.mark.parametrize("kind", ["wandb", "tensorboard"])
def test_a_tracker_is_imported_only_when_it_is_used(kind: str, request: pytest.FixtureRequest) -> None:
    output = request.getfixturevalue(f"with_{kind}").output
    printed = [line for line in output.splitlines() if line.startswith("loaded:")]
    assert printed == ["loaded:"] * (len(KILLED_IN) + 1) + [f"loaded: {kind}"]


def test_a_key_is_in_no_file_no_log_and_no_report(with_wandb: Finished) -> None:
    everything = [*with_wandb.store.root.rglob("*"), *with_wandb.home.rglob("*")]
    files = [path for path in everything if path.is_file()]
    assert {"report.html", "summary.json", "manifest.json"} <= {path.name for path in files}
    assert ".wandb" in {path.suffix for path in files}
    assert [path for path in files if KEY.encode() in path.read_bytes()] == []
    tables = [path for path in files if path.suffix == ".parquet"]  # compressed, so looked into
    assert [path for path in tables if KEY in str(read_table(path).to_pylist())] == []
    assert KEY not in with_wandb.output
    assert "optimize" in with_wandb.output
