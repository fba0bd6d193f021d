"""A stage that two processes train together through Flyte's Elastic: as one process does, stopped, and refused."""

import signal
import time
from pathlib import Path

import pytest
from safetensors.torch import load_file

from tasks.store import Store
from tests.settings import deepspeed
from tests.train.together import largest_difference
from tests.workflows.runs import Finished, refusal_text
from tests.workflows.test_decks import decks_of, tabs
from tools.forked import Runner
from tools.runs import steps

pytest.importorskip("deepspeed")
TWO = deepspeed(zero_stage=3, processes=2)


def policies(runner: Runner) -> dict[str, Path]:
    """The policies after stage 1, by the backend that made them."""
    store = Store.open(runner.store)
    made = [one for one in store.manifests("policy") if one.facts["stage"] == 1]
    return {one.settings["backend"]["kind"]: store.path(one.ref) for one in made}


@pytest.fixture(scope="module")
def trained(finished: Finished) -> Finished:
    return Finished(finished.runner, finished.runner.made("mu_grpo_1", "--seed", "2", "--overrides", TWO))


def test_two_processes_make_the_policy_of_one(trained: Finished) -> None:
    runner, output = trained
    made = policies(runner)
    ours, theirs = (load_file(made[kind] / "model.safetensors") for kind in ("deepspeed", "torch"))
    assert largest_difference(ours, theirs) < 1e-4
    assert steps(output)[:2] == ["stage 1 logp", "stage 1 optimize"]
    assert "Traceback" not in output


def test_rank_0_alone_writes_the_deck(trained: Finished) -> None:
    made = next(one for one in trained.store.manifests("policy") if one.settings["backend"]["kind"] == "deepspeed")
    (deck,) = [deck for deck in decks_of(trained.runner) if tabs(deck) == ["optimize"] and made.digest in deck]
    assert deck.count("<svg") == 2


@pytest.mark.long
def test_sigterm_reaches_every_process_and_the_stage_resumes(trained: Finished, tmp_path: Path) -> None:
    before, other = policies(trained.runner)["deepspeed"], trained.copied(tmp_path)
    options = ("mu_grpo_1", "--seed", "2", "--overrides", f"{TWO} operation.updates_per_checkpoint=1")
    running = other.launch(*options)
    while not (saved := next(other.store.glob("progress/*/train-*/manifest.json"), None)):
        assert running.returncode is None, running.printed
        time.sleep(0.1)
    running.send(signal.SIGTERM)
    ended = running.end()
    assert ended.returncode == 128 + signal.SIGTERM, ended.stdout
    assert "stopped by SIGTERM after update" in ended.stdout
    other.made(*options)
    assert not saved.exists()
    ours, theirs = (one / "model.safetensors" for one in (policies(other)["deepspeed"], before))
    assert ours.read_bytes() == theirs.read_bytes()


@pytest.mark.long
def test_an_error_of_a_process_is_the_error_of_the_task(trained: Finished) -> None:
    # The limit alone changes no result, and would find the stored policy.
    changes = "optimize.learning_rate=2e-4 optimize.max_logp_mismatch=1e-12"
    done = trained.runner.run("mu_grpo_1", "--seed", "2", "--overrides", f"{TWO} {changes}")
    assert "engine and trainer log-probabilities differ by" in refusal_text(done)
