"""Ends of runs, and a reproduction in miniature."""

import shutil
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from tasks.store import Store
from tools.forked import Runner
from tools.runs import CONFIG


class Finished(NamedTuple):
    """A runner, and what its finished run printed."""

    runner: Runner
    output: str

    @property
    def store(self) -> Store:
        return Store.open(self.runner.store)

    @property
    def pristine(self) -> Path:
        """A copy of the run's store that nobody adds to."""
        return self.runner.folder / "pristine"

    def copied(self, folder: Path) -> Runner:
        """A runner elsewhere, with a copy of the run's store and an empty Flyte cache."""
        runner = Runner(folder)
        shutil.copytree(self.pristine, runner.store)
        return runner


def assert_succeeded(done: subprocess.CompletedProcess[str]) -> subprocess.CompletedProcess[str]:
    """A program that must have ended well; its output is shown where it has not."""
    assert done.returncode == 0, f"{done.stdout}{done.stderr}"
    return done


def words(text: str) -> str:
    """What a terminal shows, in one line and without frames."""
    return " ".join(text.replace("│", " ").split())


def refusal_text(done: subprocess.CompletedProcess[str]) -> str:
    """The message, in one line, of a program that must have been refused without a traceback."""
    text = words(done.stdout + done.stderr)
    assert done.returncode != 0, text
    assert "Traceback" not in text
    return text


def experiment() -> dict[str, Any]:
    """Three systems on two benchmarks, as a file says it."""
    common = yaml.safe_load(CONFIG.read_text())
    policy = {"policy": common.pop("policy")}
    policy["policy"]["tiny"]["warm_start"] |= {"working_updates": 40, "guessing_updates": 20}
    common["prompts"] |= {"prompts_per_stage": 32, "prompts_per_shard": 32}
    common["optimize"] = {"responses_per_update": 64, "learning_rate": 3e-4}
    easy = {"name": "easy", "problems": 20, "source": {"arithmetic": {"levels": [1]}}}
    hard = {"name": "hard", "problems": 10, "source": {"arithmetic": {"levels": [2]}}}
    common["evaluate"] = {"benchmarks": [easy, hard], "samples_per_problem": 2, "max_new_tokens": 16}
    return {
        "models": {"tiny": policy},
        "systems": {
            "mu_grpo": {"optimize": {"preset": "mu_grpo"}},
            "grpo": {"optimize": {"preset": "grpo"}, "updates_per_rollout": 1},
            "m2po": {"optimize": {"preset": "m2po"}},
        },
        "common": common,
        "seeds": [0],
        "margin": 0.1,
    }
