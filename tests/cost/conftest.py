"""Two real runs on an S3 server, whose every step begins with nothing on its disk, and the requests that they made."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tasks.artifacts import Store
from tasks.report.history import History, load_history
from tasks.settings import RunSettings
from tests.cost.pods import Pods
from tests.s3 import server
from tests.workflows.runs import CONFIG

STAGES = 2
_SIZES = (
    "policy.tiny.hidden_size=64 policy.tiny.warm_start.working_updates=2 policy.tiny.warm_start.guessing_updates=2 "
    "prompts.prompts_per_stage=24 prompts.prompts_per_shard=16 rollout.responses_per_prompt=4 "
    "rollout.responses_per_part=32 rollout.max_new_tokens=2 evaluate.problems=10 evaluate.max_new_tokens=2 "
    "evaluate.responses_per_part=20 "
    # Too short for an answer, so that no verifier starts, and wrong answers alone teach too.
    "optimize.preset=asymre optimize.responses_per_update=16 operation.updates_per_checkpoint=2"
)
_LINE = re.compile(r'"(?:\x1b\[[0-9;]*m)*(GET|HEAD|PUT|POST|DELETE) (\S+) HTTP')
"""Of the server's log, which colors what is not a plain success."""


@dataclass(frozen=True)
class Made:
    """A finished run."""

    run: RunSettings
    store: Store
    history: History
    puts: int
    """Requests that wrote or listed."""
    gets: int


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Made]]:
    """Runs of both workflows, by their names, each in a bucket of its own."""
    folder = tmp_path_factory.mktemp("pods")
    with pytest.MonkeyPatch.context() as patch, server(log=folder / "log") as s3:
        for name, value in s3.environment(folder / "cache").items():
            patch.setenv(name, value)
        yield {
            name: _made(RunSettings.read(CONFIG, f"{_SIZES} {change}"), f"s3://{s3.bucket()}/run", folder)
            for name, change in (("mu_grpo", ""), ("grpo", "updates_per_rollout=2"))
        }


def _made(run: RunSettings, uri: str, folder: Path) -> Made:
    before = len((folder / "log").read_text().splitlines())
    pods = Pods(uri, folder / "cache")
    report = pods.run(run, STAGES)
    lines = (folder / "log").read_text().splitlines()[before:]
    kinds = [_kind(*found.groups()) for line in lines if (found := _LINE.search(line))]
    history = load_history(pods.store, pods.store.manifest(report).parents["evaluations"])
    return Made(run, pods.store, history, kinds.count("put"), kinds.count("get"))


def _kind(method: str, path: str) -> str:
    if "list-type" in path:
        return "put"
    if method == "DELETE" or path.endswith("?delete"):
        return "delete"
    return "get" if method in ("GET", "HEAD") else "put"
