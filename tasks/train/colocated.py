"""Generate, verify and train in one process, or in each of several, on the same devices.

Each of several processes has an engine, which generates its share of a refresh's responses, and all of them train on
all responses together.
"""

import json
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from torch import Tensor

from tasks.artifacts.tables import ROLLOUTS, VERDICTS, to_table
from tasks.errors import SettingsError
from tasks.policy.loading import load_tokenizer, stop_token_ids
from tasks.policy.lora import merged
from tasks.policy.memory import enough_memory
from tasks.policy.scorer import Scorer
from tasks.resident import release
from tasks.rollout.engine import Work
from tasks.rollout.engines import load_engine
from tasks.rollout.limit import AtLimit
from tasks.rollout.requests import unfit_prompts
from tasks.rollout.step import Missing, sample
from tasks.settings import OptimizeSettings, RolloutSettings, VerifySettings
from tasks.train import distributed
from tasks.train.batches import collect, group_order
from tasks.train.outcome import Outcome, PartOfStage, Row
from tasks.train.stage import OUT_OF_MEMORY_FIX, load_trainer
from tasks.train.trainer import Phase
from tasks.verify.pool import check_failures, shared_verifier
from tasks.verify.step import Tally, pair, table_verdicts, verdict_rows
from tasks.verify.verdicts import FAILURES, Verdict

Prompt = Mapping[str, Any]
"""A row of the prompts table."""


class Colocated:
    """An engine that generates and a trainer that learns, in turn, on the same devices; a context manager.

    Args:
        folder: of the policy to start from.
        rollout: how to sample.
        verify: the verifier's.
        optimize: of the updates.
        policy_digest: of the policy to start from.
        prompts: of the whole stage.
        stage: counts from 0.
        seed: the run's.
        phase: times the phases of a refresh.
        start: the base policy, beside whose weights adapters are trained.
        reference: loads the base policy, where the objective has a KL to it.
    """

    def __init__(
        self,
        folder: Path,
        rollout: RolloutSettings,
        verify: VerifySettings,
        optimize: OptimizeSettings,
        policy_digest: str,
        prompts: Sequence[Prompt],
        stage: int,
        seed: int,
        phase: Phase,
        start: Path | None = None,
        reference: Callable[[], Scorer | None] | None = None,
    ) -> None:
        release()
        self.tokenizer = load_tokenizer(folder)
        # First the engine: vLLM looks at how much of a GPU's memory is free.
        self.engine = load_engine(folder, rollout.engine, takes_turns=True)
        with ExitStack() as closing:
            closing.callback(self.engine.close)
            self.engine.rest()
            self.trainer = load_trainer(folder, optimize, rollout.max_new_tokens, seed, start)
            self._reference = reference() if reference else None
            workers = -(-verify.workers // distributed.world_size())
            self.verifier = shared_verifier(verify.model_copy(update={"workers": workers}))
            self.outcomes: list[Outcome] = []
            self.call_seconds: list[float | None] = []
            """Seconds of generation of every refresh; None where its responses were found."""
            self.tally = Tally()
            limit = f"rollout.max_new_tokens {rollout.max_new_tokens}"
            self.limit = AtLimit(self.tokenizer, stop_token_ids(folder), limit)
            self._responses = len(prompts) * rollout.responses_per_prompt
            self._failures: list[tuple[Verdict, str]] = []
            self.missing = Missing(self._responses, rollout.max_missing_share)
            self._unfit = unfit_prompts(self.tokenizer, prompts, self.engine.context_tokens, rollout.max_new_tokens)
            for name, reason in self._unfit.items():
                self.missing.add(name, rollout.responses_per_prompt, reason)
            self._rollout, self._verify, self._optimize = rollout, verify, optimize
            self._policy_digest, self._stage, self._seed, self._phase = policy_digest, stage, seed, phase
            closing.pop_all()

    def __enter__(self) -> "Colocated":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.engine.close()

    def to_generation(self) -> None:
        """Wake the engine, with the weights as they are now."""
        with self._phase("switch"):
            self.engine.update_weights(self._weights())

    def to_training(self) -> None:
        """Let the engine rest, so that the trainer has the memory."""
        with self._phase("switch"):
            self.engine.rest()

    def refresh(
        self,
        prompts: Sequence[Prompt],
        after_update: Callable[[Row], None] | None = None,
        noted: Collection[int] = (),
    ) -> tuple[pa.Table, pa.Table]:
        """Generate, verify, and make the updates of one refresh; return its rollouts and verdicts.

        Args:
            prompts: of the refresh.
            after_update: as for ``Trainer.train``, as is ``noted``.
            noted: of this refresh's updates.

        Raises:
            DataError: more responses of the stage are missing than ``rollout.max_missing_share`` allows.
            GateError: the verifier could not tell too often, or see ``Trainer.train``.
        """
        self.to_generation()
        with self._phase("generate"):
            began = time.perf_counter()
            name = f"{self._policy_digest}+{self.trainer.updates}"
            sampled = sample(
                self.engine,
                self.tokenizer,
                self._rollout,
                share(prompts),
                name,
                self._stage,
                self._seed,
                unfit=self._unfit,
            )
            rollouts = gathered(to_table(sampled, ROLLOUTS))
            self.call_seconds.append(time.perf_counter() - began)
        with self._phase("verify"):
            judged = self.verifier.verify([pair(row) for row in sampled])
            verdicts = gathered(to_table(verdict_rows(sampled, judged), VERDICTS))
            self.count(rollouts, verdicts)
        self.to_training()
        with self._phase("switch"):
            responses = collect([rollouts], [verdicts], self._rollout.responses_per_prompt)
        rows = np.arange(rollouts.num_rows).reshape(-1, self._optimize.responses_per_update)
        with enough_memory("optimize", OUT_OF_MEMORY_FIX):
            outcome = self.trainer.train(
                responses,
                list(rows),
                self._stage,
                self._phase,
                self._reference,
                part=PartOfStage(self._responses, sum(outcome.dropped for outcome in self.outcomes)),
                after_update=after_update,
                noted=noted,
            )
        self.outcomes.append(outcome)
        return rollouts, verdicts

    def count(self, rollouts: pa.Table, verdicts: pa.Table) -> None:
        """Count the tables of a refresh, and check the limits of the stage.

        Raises:
            DataError: too many of the stage's responses are missing.
            GateError: the verifier could not tell of too many.
        """
        self.tally.add_rollouts(rollouts)
        self.limit.add_table(rollouts)
        judged = table_verdicts(verdicts)
        self.tally.add_verdicts(judged)
        pairs = zip(judged, rollouts["prompt_id"].to_pylist(), strict=True)
        self._failures += [(verdict, name) for verdict, name in pairs if verdict.outcome in FAILURES]
        check_failures(self._failures, self._verify, self._responses)
        for name in rollouts.filter(pc.equal(rollouts["finish_reason"], "missing"))["prompt_id"].to_pylist():
            if name not in self._unfit:
                self.missing.add(name, 1, "the engine gave it up.")

    def _weights(self) -> Iterable[tuple[str, Tensor]]:
        """Return the policy's weights, whole; every process must go through all of them."""
        backend, lora = self.trainer.backend, self._optimize.lora
        return backend.weights() if lora is None else merged(backend.frozen(), dict(backend.weights()), lora)


def share(prompts: Sequence[Prompt]) -> list[Prompt]:
    """Return this process's prompts; all processes together have each prompt once, in order."""
    places = np.array_split(np.arange(len(prompts)), distributed.world_size())[distributed.rank()]
    return [prompts[place] for place in places]


def plan_refreshes(
    rows: Sequence[Prompt],
    rollout: RolloutSettings,
    optimize: OptimizeSettings,
    updates_per_rollout: int,
    seed: Sequence[int],
) -> list[list[Prompt]]:
    """Return the prompts of every refresh, in the order in which their groups are consumed.

    Raises:
        SettingsError: refreshes do not divide the prompts.
    """
    batches = updates_per_rollout // optimize.objective.schedule.updates_per_batch
    groups = optimize.responses_per_update * batches // rollout.responses_per_prompt
    if not groups or len(rows) % groups:
        raise SettingsError(
            f"updates_per_rollout: {updates_per_rollout} takes {groups} prompts per refresh, which does not divide the "
            f"{len(rows)} prompts of a stage."
        )
    ordered = [rows[place] for place in group_order(len(rows), seed)]
    return [ordered[start : start + groups] for start in range(0, len(rows), groups)]


def gathered(table: pa.Table) -> pa.Table:
    """Gather the rows of every process's table, in the order of their ranks, in every process."""
    if distributed.world_size() == 1:
        return table
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    parts = distributed.gather_bytes(sink.getvalue().to_pybytes())
    return pa.concat_tables([pa.ipc.open_stream(part).read_all() for part in parts]).combine_chunks()


def gathered_work(work: Work) -> list[Work]:
    """Gather the work of every process's engine, in the order of their ranks, in every process."""
    return [Work(*json.loads(one)) for one in distributed.gather_bytes(json.dumps(work).encode())]
