"""Two real runs, whose every step begins with nothing in its process."""

from dataclasses import dataclass

import pytest

from tasks.report.history import History, load_history
from tasks.settings import RunSettings
from tasks.store import Store
from tests.cost.pods import Pods
from tools.runs import CONFIG

STAGES = 2
_SIZES = (
    "policy.tiny.hidden_size=64 policy.tiny.warm_start.working_updates=2 policy.tiny.warm_start.guessing_updates=2 "
    "prompts.prompts_per_stage=24 prompts.prompts_per_shard=16 rollout.responses_per_prompt=4 "
    "rollout.responses_per_part=32 rollout.max_new_tokens=2 evaluate.problems=10 evaluate.max_new_tokens=2 "
    "evaluate.responses_per_part=20 "
    # Too short for an answer, so that no verifier starts, and wrong answers alone teach too.
    "optimize.preset=asymre optimize.responses_per_update=16 operation.updates_per_checkpoint=2"
)


@dataclass(frozen=True)
class Made:
    """A finished run."""

    run: RunSettings
    store: Store
    history: History


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Made]:
    """Runs of both workflows, by their names, each in a store of its own."""
    folder, found = tmp_path_factory.mktemp("pods"), {}
    for name, change in (("mu_grpo", ""), ("grpo", "updates_per_rollout=2")):
        run = RunSettings.read(CONFIG, f"{_SIZES} {change}")
        pods = Pods(str(folder / name), folder / "cache")
        report = pods.run(run, STAGES)
        history = load_history(pods.store, pods.store.manifest(report).parents["evaluations"])
        found[name] = Made(run, pods.store, history)
    return found
