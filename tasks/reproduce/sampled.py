"""The responses of a run as lengths, in the order in which they were generated, and the calls that made them.

Legend of shapes: R responses.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tasks.artifacts import Store
from tasks.artifacts.records import Manifest
from tasks.cluster.measured import alternates
from tasks.cluster.steps import parts
from tasks.report.history import History, Stage
from tasks.settings import EngineSettings, RolloutSettings

Ints = npt.NDArray[np.int64]
_COLUMNS = ["prompt_id", "prompt_token_ids", "response_token_ids"]
_ROWS_AT_ONCE = 4096


@dataclass(frozen=True)
class Call:
    """Responses that were asked for at once."""

    shares: tuple[int, ...]
    """Responses of every engine; several generate side by side, and the call ends with the last."""
    seconds: float | None
    """None where it is not known."""


@dataclass(frozen=True)
class Sampled:
    """The responses of a run, and how they were generated."""

    prompt_R: Ints
    """Which prompt: equal prompts have one number, and numbers rise with length, then token ids."""
    prompt_tokens_R: Ints
    tokens_R: Ints
    """Of the responses; 0 where one is missing."""
    calls: list[Call]
    """In the order of the responses."""
    engine: EngineSettings

    @property
    def timed(self) -> bool:
        """Whether the seconds of every call are known."""
        return all(call.seconds is not None for call in self.calls)

    @property
    def sequence_tokens(self) -> int:
        """Of prompts and responses: what is trained on."""
        return int(self.prompt_tokens_R[self.tokens_R > 0].sum() + self.tokens_R.sum())


def read_sampled(store: Store, history: History) -> Sampled | None:
    """The responses of a run; None before its first stage. Reads all of its rollouts.

    Raises:
        ArtifactError: rollouts are missing or corrupted.
        SettingsError: they were made with settings that this version does not read.
    """
    made = [(stage, shard) for stage in history.stages for shard in stage.rollouts]
    if not made:
        return None
    rows = _Rows()
    calls = [call for stage, shard in made for call in _calls(stage, shard, rows.read(store, shard))]
    return Sampled(
        prompt_R=rows.numbers(),
        prompt_tokens_R=np.concatenate(rows.prompt_tokens),
        tokens_R=np.concatenate(rows.tokens),
        calls=calls,
        engine=_settings(*made[-1]).engine,
    )


class _Rows:
    """What is kept of the rows of many rollouts."""

    def __init__(self) -> None:
        self.prompt_tokens: list[Ints] = []
        self.tokens: list[Ints] = []
        self._known: dict[bytes, int] = {}
        self._prompts: list[int] = []

    def read(self, store: Store, shard: Manifest) -> int:
        """Takes up an artifact, a few rows at a time; returns how many it has."""
        named: dict[str, int] = {}
        before = len(self._prompts)
        with pq.ParquetFile(store.file(shard, "rollouts.parquet")) as file:
            for batch in file.iter_batches(_ROWS_AT_ONCE, columns=_COLUMNS):
                self.prompt_tokens.append(_lengths(batch["prompt_token_ids"]))
                self.tokens.append(_lengths(batch["response_token_ids"]))
                for row, name in enumerate(batch["prompt_id"].to_pylist()):
                    if name not in named:
                        named[name] = self._known.setdefault(_key(batch["prompt_token_ids"][row]), len(self._known))
                    self._prompts.append(named[name])
        return len(self._prompts) - before

    def numbers(self) -> Ints:
        """The number of every row's prompt, by length and then token ids."""
        rank = np.empty(len(self._known), dtype=np.int64)
        ordered = sorted(self._known, key=lambda key: (len(key), key))
        rank[[self._known[key] for key in ordered]] = np.arange(len(ordered))
        return rank[self._prompts]


def _key(token_ids: pa.Scalar) -> bytes:
    """The bytes of big-endian numbers compare as the numbers do."""
    return np.asarray(token_ids.as_py() or [], dtype=">i4").tobytes()


def _lengths(column: pa.Array) -> Ints:
    lengths: Ints = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    return lengths


def _settings(stage: Stage, shard: Manifest) -> RolloutSettings:
    return RolloutSettings.parse(stage.policy.settings["rollout"] if alternates(stage.policy) else shard.settings)


def _calls(stage: Stage, shard: Manifest, responses: int) -> Iterator[Call]:
    """The calls that made the rollouts of an artifact."""
    made = _settings(stage, shard)
    prompts, group = responses // made.responses_per_prompt, made.responses_per_prompt
    if alternates(stage.policy):
        updates = stage.last_update - stage.first_update + 1
        refreshes = updates // int(stage.policy.facts["updates_per_rollout"])
        sizes = [prompts // refreshes] * refreshes
    else:
        sizes = parts(prompts, group, made.responses_per_part)
    engines = int(shard.facts.get("engines", 1))
    seconds = shard.facts.get("call_seconds") or [None] * len(sizes)
    for size, spent in zip(sizes, seconds, strict=True):
        each, more = divmod(size, engines)
        yield Call(tuple(group * (each + (place < more)) for place in range(engines)), spent)
