"""A process that is killed and one that goes on: one run in the tracker, every number once, and no key anywhere."""

import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from tasks.store import ArtifactRef, Store
from tasks.store.tables import read_table
from tests.prepared import IN_PARTS, PROMPTS, Learner, prepare_held_out, prepare_verdicts
from tests.tracking.test_tracking import (
    KEY,
    LONGER,
    Shown,
    copied,
    expected,
    in_tensorboard,
    in_wandb,
    messages,
    rounded,
)
from tools.forked import run

KILLED_IN = 4


@dataclass(frozen=True)
class Ended:
    """The end of two processes: the first was killed in an update, the second went on to the end."""

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


def ended(kind: str, learner: Learner, folder: Path) -> Ended:
    store, home = Store.open(folder / "store"), folder / "home"
    home.mkdir()
    policy = copied(*learner, store)
    rollouts, verdicts = prepare_verdicts(store, policy, LONGER, IN_PARTS)
    named = [str(ref) for ref in (policy, prepare_held_out(store, PROMPTS, 6), verdicts, *rollouts)]
    environment = {
        **os.environ,
        "HOME": str(home),
        "MU_GRPO_LOG_LEVEL": "debug",
        "WANDB_API_KEY": KEY,
        "WANDB_MODE": "offline",
    }
    output = ""
    for kill, code in ((KILLED_IN, -9), (0, 0)):
        done = run(["-m", "tests.tracking.processes", str(store.root), kind, str(kill), *named], environment)
        output += done.stdout + done.stderr
        assert done.returncode == code, output
    digest = output.rsplit("loaded:", 1)[0].splitlines()[-1].split()[0]
    return Ended(store, ArtifactRef(kind="policy", digest=digest), output, home)


@pytest.fixture(scope="module")
def of_wandb(learner: Learner, tmp_path_factory: pytest.TempPathFactory) -> Ended:
    return ended("wandb", learner, tmp_path_factory.mktemp("wandb"))


@pytest.fixture(scope="module")
def of_tensorboard(learner: Learner, tmp_path_factory: pytest.TempPathFactory) -> Ended:
    return ended("tensorboard", learner, tmp_path_factory.mktemp("tensorboard"))


def of_updates(shown: Shown) -> Shown:
    return Shown({entry: times for entry, times in shown.items() if entry[0].startswith("optimize/")})


def test_tensorboard_has_every_number_of_both_processes_once(of_tensorboard: Ended) -> None:
    shown = in_tensorboard(of_tensorboard.store.root / "tracking/tensorboard/a-run")
    assert of_updates(shown) == rounded(of_tensorboard.updates)
    assert {update for _, update, _ in shown} >= set(range(1, 9))
    accuracies = {update: value for tag, update, value in shown if tag == "evaluate/held_out/accuracy"}
    assert accuracies == pytest.approx(of_tensorboard.accuracies)
    assert set(accuracies) == {0, 8}


def test_wandb_has_no_number_twice_and_all_after_the_kill(of_wandb: Ended) -> None:
    """Numbers that a killed process had handed over but not written are lost, and not shown again."""
    shown = in_wandb(of_wandb.store.root / "tracking/wandb")
    assert set(shown.values()) == {1}
    updates = of_updates(shown)
    assert updates <= of_wandb.updates
    later = {entry for entry in of_wandb.updates if entry[1] >= KILLED_IN}
    assert later <= set(updates)
    accuracies = {update: value for tag, update, value in shown if tag == "evaluate/held_out/accuracy"}
    assert accuracies == pytest.approx(of_wandb.accuracies)


def test_all_parts_are_one_run_of_wandb(of_wandb: Ended) -> None:
    files = list((of_wandb.store.root / "tracking/wandb").rglob("*.wandb"))
    assert len(files) == 4, "updates before and after the kill, and two evaluations"
    runs = {message.run.run_id for file in files for message in messages(file) if message.HasField("run")}
    assert runs == {"a-run"}


@pytest.mark.parametrize("kind", ["wandb", "tensorboard"])
def test_a_package_is_loaded_when_it_is_asked_for(kind: str, request: pytest.FixtureRequest) -> None:
    output = request.getfixturevalue(f"of_{kind}").output
    told = [line for line in output.splitlines() if line.startswith("loaded:")]
    assert told == ["loaded:", "loaded:", f"loaded: {kind}"]


def test_a_key_is_in_no_file_no_log_and_no_report(of_wandb: Ended) -> None:
    written = [path for folder in (of_wandb.store.root, of_wandb.home) for path in folder.rglob("*") if path.is_file()]
    names = {path.name for path in written}
    assert {"report.html", "summary.json", "manifest.json"} <= names
    assert any(name.endswith(".wandb") for name in names)
    assert [path for path in written if KEY.encode() in path.read_bytes()] == []
    tables = [path for path in written if path.suffix == ".parquet"]  # compressed, so looked into
    assert [path for path in tables if KEY in str(read_table(path).to_pylist())] == []
    assert KEY not in of_wandb.output
    assert "optimize" in of_wandb.output
