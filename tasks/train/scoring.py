"""Score the responses of a stage with several policies, and select those that take part in its updates.

Shapes: T response tokens of a micro-batch, R responses, r those of a micro-batch.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor

from tasks.errors import CollapseError, GateError
from tasks.formats import percent
from tasks.models.scorer import MicroBatch, Scorer, pack_flat
from tasks.process.logs import bar
from tasks.settings import OptimizeSettings
from tasks.store.records import Manifest
from tasks.train import distributed
from tasks.train.advantages import select
from tasks.train.backend import Backend
from tasks.train.batches import Flags, Floats, Ints, Ragged, Responses, micro_batches, plan_batches, shares, zeros
from tasks.train.bounds import Bounds, update_bounds
from tasks.train.checkpoint import Checkpoints, Columns
from tasks.train.results import StageResults
from tasks.train.tokens import TokenBatch

_AT_ONCE = 2**20
"""Number of values of a column that are checked at once."""


@dataclass
class ScoredResponses:
    """Responses of a stage or a refresh, which of them take part, and a column of log-probabilities for each policy."""

    responses: Responses
    backend: Backend
    settings: OptimizeSettings
    max_response_tokens: int
    stage: int
    """The stage, counted from 0."""
    seed: tuple[int, int, int]
    """The seed of random choices: the run's seed, the stage, and the updates before these responses."""
    batches: Sequence[Ints]
    """The rows of each batch, in the order in which updates consume them."""

    def __post_init__(self) -> None:
        self.logp: Columns = {}
        """Log-probabilities of all response tokens by policy: engine, behavior, and where used reference and proximal.

        Only the engine's are known for responses that do not take part.
        """
        self.add({"engine": np.asarray(self.responses.engine_logp.flat, dtype=np.float32)})

    def add(self, columns: Columns) -> None:
        """Add columns, and select responses: those with log-probabilities that are not finite take no part."""
        self.logp |= columns
        self._not_finite_R: Flags = np.zeros(len(self.responses.group_R), dtype=bool)
        for name in {"engine", "behavior"} & self.logp.keys():
            self._not_finite_R |= ~finite_responses(self.logp[name], self.responses)
        draw_R = draws(len(self.responses.group_R), np.concatenate(self.batches), self.seed)
        objective, longest = self.settings.objective, self.max_response_tokens
        self.selection = select(self.responses, objective, longest, self._not_finite_R, draw_R)

    def score(self, earlier_updates: int, reference: Scorer | None, checkpoints: Checkpoints | None) -> None:
        """Compute log-probabilities by the current policy, which sampled these responses, and by the reference.

        ``checkpoints`` saves the columns, or has them already; ``earlier_updates`` is the number of the
        stage's updates before these responses.
        """
        known = checkpoints.load_logp(earlier_updates) if checkpoints else {}
        self.add(known or {"behavior": self.logp_of(self.batches, self.backend, "logp")})
        if reference is not None and "reference" not in known:
            self.logp["reference"] = self.logp_of(self.batches, reference, "reference logp")
        if checkpoints and not known:
            checkpoints.save_logp(earlier_updates, self.logp)

    def count(self, results: StageResults) -> None:
        """Add the counts of these responses to the results of the stage.

        Raises:
            GateError: too many log-probabilities are not finite, or engine and trainer differ too much.
        """
        selection = self.selection
        results.groups += selection.groups
        results.zero_variance_groups += selection.zero_variance_groups
        results.reward_sum += float(np.nansum(self.responses.reward_R[~self._not_finite_R], dtype=np.float64))
        results.unscored += selection.unscored
        results.has_signal |= bool(selection.advantage_R.any())
        results.dropped += int(self._not_finite_R.sum())
        if results.dropped > self.settings.max_dropped_share * results.responses:
            # A study stores a collapse as its result. The limit is in no cache key, so it must not decide a result.
            error = CollapseError if self._not_finite_R.all() else GateError
            raise error(
                f"optimize: {results.dropped} of {results.responses} responses "
                f"({percent(results.dropped / results.responses)}) have log-probabilities that are not finite; "
                f"optimize.max_dropped_share allows {percent(self.settings.max_dropped_share)}. Look at the engine's "
                "precision."
            )
        total, tokens, largest = self._mismatch()
        mean = total / max(1, tokens)
        results.mismatch_sum += total
        results.mismatch_tokens += tokens
        results.logp_mismatch_max = max(results.logp_mismatch_max, largest)
        if not mean <= self.settings.max_logp_mismatch:
            raise GateError(
                f"optimize: engine and trainer log-probabilities differ by {mean:.4f} on average (largest "
                f"{largest:.4f}); optimize.max_logp_mismatch allows {self.settings.max_logp_mismatch}. Check that the "
                "rollouts come from this policy and that the engine's precision is the trainer's."
            )

    def _mismatch(self) -> tuple[float, int, float]:
        """Return sum, number and maximum of the differences of engine's and trainer's log-probabilities, in nats."""
        tokens, total, largest = 0, 0.0, 0.0
        engine, behavior = self.logp["engine"], self.logp["behavior"]
        for batch in self.batches:
            indices = self.responses.response_tokens.indices(self.selection.active_rows(batch))
            difference_T: Floats = np.abs(behavior[indices].astype(np.float64) - engine[indices])
            tokens, total = tokens + len(indices), total + float(difference_T.sum())
            largest = max(largest, float(difference_T.max(initial=0.0)))
        return total, tokens, largest

    @torch.no_grad()
    def logp_of(
        self, batches: Sequence[Ints], scorer: Backend | Scorer, title: str, known: Floats | None = None
    ) -> Floats:
        """Compute log-probabilities, in nats, of all tokens in some batches; return a column of all tokens.

        At other tokens it has the values of the column ``known``, which it replaces, or else 0. The micro-batches are
        those of the updates, so that the first update's ratio is 1 to the last bit, unless some of these
        log-probabilities are not finite. ``title`` is shown in the progress bar.
        """
        flat: Floats = zeros(len(self.logp["engine"]), self.responses.folder) if known is None else known
        tokens = self.responses.response_tokens
        with bar(f"stage {self.stage + 1} {title}", len(batches)) as progress:
            for batch in batches:
                of_batch = tokens.indices(batch)
                flat[of_batch] = 0
                for rows in self.micro_rows(batch):
                    flat[tokens.indices(rows)] = scorer(self._micro_batch(rows))[0].cpu().numpy()
                # A column of a whole stage can have gigabytes, of which a batch is a small part.
                flat[of_batch] = distributed.all_reduce_sum(torch.from_numpy(flat[of_batch])).numpy()
                progress.advance()
        return flat

    def micro_rows(self, rows: Ints) -> list[Ints]:
        """Return the rows of this process's micro-batches in an update over some rows."""
        active = self.selection.active_rows(rows)
        tokens = self.responses.sequence_tokens(active)
        micros = micro_batches(tokens, self.settings.tokens_per_micro_batch, padded=not self.backend.packed)
        return [active[micro] for micro in shares(micros, tokens, distributed.world_size())[distributed.rank()]]

    def forward(self, rows: Ints) -> tuple[TokenBatch, Tensor]:
        """Score a micro-batch by the current policy; return the objective's input, and entropies [T] in nats."""
        packed = self._micro_batch(rows)
        logp_T, entropy_T = self.backend(packed)
        indices, device = self.responses.response_tokens.indices(rows), logp_T.device
        columns = self.logp
        if self.settings.objective.mismatch.kind == "bypass":
            columns = {**columns, "behavior": columns["engine"]}
        advantage_r = self.selection.advantage_R.index_select(0, torch.from_numpy(rows))
        tokens = TokenBatch(
            logp_T=logp_T,
            advantage_T=advantage_r.index_select(0, packed.response_T).to(device),
            response_T=packed.response_T.to(device),
            responses=len(rows),
            **{f"{policy}_logp_T": torch.from_numpy(flat[indices]).to(device) for policy, flat in columns.items()},
        )
        return tokens, entropy_T

    @torch.no_grad()
    def bounds(self, micro_rows: Iterable[Ints]) -> Bounds:
        """Return the interval of the ratio in an update over some micro-batches.

        If the gate computes its interval, this scores all tokens of the update first.
        """
        gate, ratio = self.settings.objective.gate, self.settings.objective.ratio
        if gate.interval is not None:
            return Bounds(*gate.interval)
        log_ratios, advantages = [torch.zeros(0)], [torch.zeros(0)]
        for rows in micro_rows:
            tokens, _ = self.forward(rows)
            log_ratios.append(tokens.log_ratio_to(ratio.reference).cpu())
            advantages.append(tokens.advantage_T.cpu())
        return update_bounds(torch.cat(log_ratios), torch.cat(advantages), gate)

    def _micro_batch(self, rows: Ints) -> MicroBatch:
        prompts, responses = self.responses.prompt_tokens, self.responses.response_tokens
        return pack_flat(prompts.of(rows), prompts.lengths_of(rows), responses.of(rows), responses.lengths_of(rows))


def draws(responses: int, order: Ints, seed: Sequence[int]) -> Tensor:
    """Return a random number for each response, [R], drawn in the order in which updates consume the rows."""
    draw_R = torch.ones(responses, dtype=torch.float64)
    draw_R[order] = torch.from_numpy(np.random.default_rng([*seed, 1]).random(len(order)))
    return draw_R


def finite_responses(logp: Floats, responses: Responses) -> Flags:
    """Return which responses have only finite values in a column of response tokens, bool [R]."""
    finite_R = np.ones(len(responses.group_R), dtype=bool)
    for start in range(0, len(logp), _AT_ONCE):
        bad = start + np.flatnonzero(~np.isfinite(logp[start : start + _AT_ONCE]))
        finite_R[np.searchsorted(responses.response_tokens.offsets, bad, side="right") - 1] = False
    return finite_R


def trained_advantages(
    policy: Manifest, earlier_updates: int, sampling: Mapping[str, Any], rollouts: pa.Table
) -> list[float | None]:
    """Compute again the advantages with which a policy was trained; None for responses that its updates left out.

    The trainer also leaves out responses for which its own log-probabilities are not finite; they are not None here.
    ``earlier_updates`` are those of the policy that it was trained from, and ``sampling`` the settings of the rollouts,
    whose table has ``policy``, ``finish_reason``, ``reward``, the number of ``tokens``, and whether the engine's
    log-probabilities are ``finite``.

    Raises:
        DataError: this code does not read the settings of the policy.
    """
    values = {name: value for name, value in policy.settings.items() if name in OptimizeSettings.model_fields}
    objective = OptimizeSettings.parse_stored(values, policy.ref).objective
    advantages: list[float | None] = []
    # A stage that alternates has a policy per refresh, named "digest+updates"; advantages are computed per refresh.
    for sampler, rows in groupby(rollouts["policy"].to_pylist()):
        count = sum(1 for _ in rows)
        sampled = rollouts.slice(len(advantages), count)
        # Advantages depend on the numbers of tokens, and not on the tokens.
        tokens = Ragged(np.zeros(0), np.concatenate([[0], sampled["tokens"].to_numpy().cumsum()]))
        batch = Responses(
            prompt_tokens=tokens,
            response_tokens=tokens,
            engine_logp=tokens,
            reward_R=sampled["reward"].to_numpy().astype(np.float32),
            group_R=np.arange(count) // sampling["responses_per_prompt"],
            truncated_R=pc.equal(sampled["finish_reason"], "length").to_numpy(),
        )
        alternated = sampler.partition("+")[2]
        seed = (policy.seed, policy.facts["stage"] - 1, int(alternated or earlier_updates))
        # Rows of a refresh are in the order of its updates already.
        batches = [np.arange(count)] if alternated else plan_batches(batch, batch.group_size, seed[:2])
        draw_R = draws(count, np.concatenate(batches), seed)
        selection = select(batch, objective, sampling["max_new_tokens"], ~sampled["finite"].to_numpy(), draw_R)
        pairs = zip(selection.advantage_R.tolist(), selection.takes_part_R.tolist(), strict=True)
        advantages += [advantage if takes_part else None for advantage, takes_part in pairs]
    return advantages
