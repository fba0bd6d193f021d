"""Runs that nobody trained, of a few kilobytes, written through the real store with the real schemas."""

import json
import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from io import StringIO
from typing import Any

from rich.console import Console, RenderableType

from tasks.settings import OptimizeSettings, RolloutSettings, VerifySettings
from tasks.store import ArtifactRef, Draft, Store
from tasks.store.tables import ROLLOUTS, VERDICTS, write_table
from tasks.stored.garbage import Garbage
from tests.workflows.runs import assert_succeeded, refusal_text
from tools.forked import run

REWARDS = ((1, 0, 0, 0), (1, 1, 0, 0), (1, 1, 1, 1), (1, 1, 1, 0))
"""Of the four groups of a stage; the first two are those of the first shard."""
ROLLOUT = RolloutSettings(responses_per_prompt=4, max_new_tokens=8)
Rows = list[dict[str, Any]]


def command(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The mu-grpo command in a process of its own."""
    return run(["mu-grpo", *arguments], {**os.environ, "COLUMNS": "200", **environment})


def run_command(*arguments: str, **environment: str) -> str:
    """What a command prints that succeeds."""
    return assert_succeeded(command(*arguments, **environment)).stdout


def run_refused(*arguments: str, code: int = 1, **environment: str) -> str:
    """The message of a command that ends with an error."""
    done = command(*arguments, **environment)
    assert done.returncode == code, done.stdout + done.stderr
    return refusal_text(done)


def rows_of(group: int, stage: int, policy: str, rewards: Sequence[float | None]) -> tuple[Rows, Rows]:
    """Rollouts and verdicts of a group; response i has i + 1 tokens, and log-probabilities -1, -2 and so on."""
    rollouts, verdicts = [], []
    prompt = {"prompt_id": f"s{stage}p{group}", "prompt": f"{group}+[1]=", "answer": str(group + 1)}
    same = {**prompt, "prompt_token_ids": [5, 6], "finish_reason": "stop", "policy": policy}
    for index, reward in enumerate(rewards):
        name = {"prompt_id": prompt["prompt_id"], "sample_index": index}
        logp = [-float(place + 1) for place in range(index + 1)]
        text = f"stage {stage} group {group} response {index}\x1b\x9b"
        response = {"response": text, "response_token_ids": list(range(index + 1)), "engine_logp": logp}
        rollouts.append({**same, **name, **response})
        outcome = "timeout" if reward is None else "correct" if reward else "wrong"
        verdicts.append({**name, "outcome": outcome, "reward": reward, "extracted": "1", "shows_working": True})
    return rollouts, verdicts


def plain(renderable: RenderableType) -> str:
    """What a wide terminal shows, without colors."""
    shown = StringIO()
    Console(file=shown, width=200).print(renderable)
    return shown.getvalue()


def fill(draft: Draft, files: Mapping[str, Any], **facts: Any) -> None:
    """Gives an artifact its facts and files; a file has a text, bytes, or rows and their schema."""
    for name, content in files.items():
        (draft.path / name).parent.mkdir(exist_ok=True)
        if isinstance(content, str | bytes):
            (draft.path / name).write_bytes(content.encode() if isinstance(content, str) else content)
        else:
            write_table(draft.path / name, *content)
    draft.facts.update(facts)


def write(
    store: Store,
    kind: Any,
    files: Mapping[str, Any],
    settings: Any = None,
    parents: Any = None,
    seed: int = 0,
    **facts: Any,
) -> ArtifactRef:
    """Writes an artifact, by default without settings and parents."""
    with store.write(kind, settings=settings or {}, parents=parents or {}, seed=seed) as draft:
        fill(draft, files, **facts)
    return draft.ref


@dataclass
class Run:
    """A run, as far as it was written."""

    store: Store
    preset: str = "grpo"
    seed: int = 0
    mu: int = 2
    objective: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Of the whole run, as its report has them."""
    policies: list[ArtifactRef] = field(default_factory=list)
    """The base policy first."""
    prompts: list[ArtifactRef] = field(default_factory=list)
    rollouts: list[list[ArtifactRef]] = field(default_factory=list)
    """Two shards a stage."""
    verdicts: list[ArtifactRef] = field(default_factory=list)
    evaluations: list[ArtifactRef] = field(default_factory=list)
    report: ArtifactRef | None = None

    @property
    def artifacts(self) -> list[ArtifactRef]:
        shards = [shard for stage in self.rollouts for shard in stage]
        report = [self.report] if self.report else []
        return [*self.policies, *self.prompts, *shards, *self.verdicts, *self.evaluations, *report]

    def write(self, task: str, kind: Any, settings: Any, parents: Any, files: Mapping[str, Any], **facts: Any) -> Any:
        return write(Store(self.store.ref, task, "1"), kind, files, settings, parents, self.seed, **facts)

    def base(self) -> "Run":
        files = {"model.safetensors": f"base {self.seed}", "config.json": "{}"}
        policy = self.write("prepare_policy", "policy", {"path": "a/b", "tiny": None}, {}, files, stage=0, updates=0)
        self.policies.append(policy)
        self.evaluate()
        return self

    def stage(self) -> "Run":
        return self.sample().optimize()

    def sample(self) -> "Run":
        """The rollouts and verdicts of the next stage."""
        stage, policy = len(self.policies) - 1, self.policies[-1]
        files = {"prompts.parquet": f"prompts {self.seed} {stage}"}
        prompts = self.write("prepare_prompts", "prompts", {}, {}, files, prompts=2)
        groups = [rows_of(group, stage, policy.digest, rewards) for group, rewards in enumerate(REWARDS)]
        self.prompts.append(prompts)
        return self.judged(groups[:2], groups[2:], prompts=prompts)

    def judged(self, *shards: Sequence[tuple[Rows, Rows]], **parents: ArtifactRef) -> "Run":
        """The next stage has these groups, shard by shard, each with its rollouts and their verdicts."""
        parents = {"policy": self.policies[-1], **parents}
        made, judged = [], []
        for groups in shards:
            rows = [row for rollouts, _ in groups for row in rollouts]
            judged += [row for _, verdicts in groups for row in verdicts]
            files = {"rollouts.parquet": (rows, ROLLOUTS)}
            made.append(self.write("generate", "rollouts", ROLLOUT, parents, files, responses=len(rows)))
        self.rollouts.append(made)
        of, files = {"rollouts": made}, {"verdicts.parquet": (judged, VERDICTS)}
        facts = {"responses": len(judged), "reward": 10 / 16}
        self.verdicts.append(self.write("verify", "verdicts", VerifySettings(), of, files, **facts))
        return self

    def optimize(self) -> "Run":
        """The policy that the latest rollouts and verdicts make."""
        stage = len(self.policies)
        values = {"preset": self.preset, "responses_per_update": 8, "objective": dict(self.objective)}
        settings = OptimizeSettings.parse(values)
        parents = {"policy": self.policies[-1], "rollouts": self.rollouts[-1], "verdicts": self.verdicts[-1]}
        facts = {"preset": self.preset, "updates_per_rollout": self.mu, "stage": stage, "updates": 2 * stage}
        files = {"model.safetensors": f"{self.preset} {self.mu} {stage}", "optimizer/moments.safetensors": "moments"}
        self.policies.append(self.write("optimize", "policy", settings, parents, files, **facts))
        self.evaluate()
        return self

    def evaluate(self) -> None:
        settings, parents = {"problems": 10, "samples_per_problem": 4}, {"policy": self.policies[-1]}
        made = self.write("evaluate", "evaluation", settings, parents, {"metrics.json": "{}"}, accuracy=0.5)
        self.evaluations.append(made)

    def end(self) -> "Run":
        parents = {"evaluations": list(self.evaluations)}
        files = {"summary.json": json.dumps([self.preset, self.mu])}
        self.report = self.write("report", "report", self.settings, parents, files, algorithm=self.preset)
        return self


def make_unfinished_run(store: Store, stages: int = 1, **fields: Any) -> Run:
    run = Run(store, **fields).base()
    for _ in range(stages):
        run.stage()
    return run


def make_finished_run(store: Store, stages: int = 2, **fields: Any) -> Run:
    return make_unfinished_run(store, stages, **fields).end()


def make_older(store: Store, refs: Sequence[ArtifactRef] | None = None, hours: float = 48.0) -> None:
    """Makes artifacts, or all of a store in a folder, older: by default, than what gc spares."""
    folders = [store.root] if refs is None else [store.root / ref.folder for ref in refs]
    for path in [path for folder in folders for path in folder.rglob("*") if path.is_file()]:
        if path.name == "manifest.json" and path.parent.parent.parent == store.root:
            manifest = json.loads(path.read_text())
            for moment in ("started", "finished"):
                manifest["timings"][moment] -= hours * 3600
            path.write_text(json.dumps(manifest))
        then = time.time() - hours * 3600
        os.utime(path, (then, then))


def names(garbage: Garbage) -> set[str]:
    return {item.name for item in garbage.items}


def folders(*refs: ArtifactRef) -> set[str]:
    return {ref.folder for ref in refs}


def on_disk(store: Store) -> set[str]:
    return {path.parent.relative_to(store.root).as_posix() for path in store.root.glob("*/*/manifest.json")}
