"""The steps that make the training set, without problems of the benchmarks, and the prompts of a stage.

A prompt counts as a problem of a benchmark if both are equal or share a long run of words.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tasks.data.benchmarks import BenchmarkNote, source_rows, unreadable_golds, with_template, write_prompts
from tasks.data.files import Row, Unusable, share_of
from tasks.errors import DataError
from tasks.formats import first_names, percent
from tasks.process.logs import logger
from tasks.settings import OperationSettings, PromptsSettings, TrainingSetSettings, VerifySettings
from tasks.store import ArtifactRef, Store
from tasks.store.layout import PROMPTS_FILE, REMOVED_FILE, TRAINING_FILE
from tasks.store.tables import REMOVED, TRAINING, TRAINING_CHATS, read_table, write_table

_NAMED = 8
"""Most rows that a message names."""
_NOTED = 1000
"""Most removed ids in a manifest; removed.parquet has all."""
FEWEST_WORDS = 8
"""Shorter problems are compared as a whole only; GPT-3's decontamination used 8 to 13 words (arXiv 2005.14165)."""
_COMMON, _COMMON_SHARE = 3, 0.05
"""A run of words is common in a benchmark if it is in more than so many problems and in more than this share."""
_WORD = re.compile(r"\w+")
_SYMBOL = re.compile(r"\w+|[^\w\s]")
_Words = tuple[str, ...]


@dataclass(frozen=True)
class Overlap:
    """The problem of a benchmark, by prompt_id, that a prompt overlaps with."""

    benchmark: str
    problem: str
    words: int
    """Length of the shared run of words; 0 if both are equal."""


class Problems:
    """An index of the problems of benchmarks by their runs of ``words`` words; with 0 it finds equal problems alone."""

    def __init__(self, words: int) -> None:
        self._words = words
        self._whole: dict[_Words, Overlap] = {}
        self._runs: dict[int, dict[_Words, Overlap]] = {}

    def add(self, benchmark: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Add the problems of a benchmark: rows with prompt_id and problem.

        For a problem with fewer words, but at least ``FEWEST_WORDS``, the run is all of its words. Runs that are common
        in the benchmark are its phrases, and are left out.
        """
        found: dict[_Words, Overlap] = {}
        times: Counter[_Words] = Counter()
        for row in rows:
            name, text = str(row["prompt_id"]), _normalize(row["problem"])
            self._whole.setdefault(_symbols(text), Overlap(benchmark, name, 0))
            words = _WORD.findall(text)
            length = min(self._words, len(words))
            if length >= min(FEWEST_WORDS, self._words) > 0:
                runs = set(_runs(words, length))
                times.update(runs)
                found |= {run: Overlap(benchmark, name, length) for run in runs if run not in found}
        for run, overlap in found.items():
            if times[run] <= max(_COMMON, _COMMON_SHARE * len(rows)):
                self._runs.setdefault(len(run), {}).setdefault(run, overlap)

    def find(self, prompt: str) -> Overlap | None:
        """Return the overlap of a prompt: with an equal problem, ignoring case and spaces, or by a run of words."""
        text = _normalize(prompt)
        if found := self._whole.get(_symbols(text)):
            return found
        words = _WORD.findall(text)
        for length, runs in sorted(self._runs.items(), reverse=True):
            for run in _runs(words, length):
                if run in runs:
                    return runs[run]
        return None


def _normalize(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold()


def _symbols(text: str) -> _Words:
    """Return words and signs, so that 1 + 2 differs from 1 - 2."""
    return tuple(_SYMBOL.findall(text))


def _runs(words: list[str], length: int) -> Iterator[_Words]:
    return (tuple(words[start : start + length]) for start in range(len(words) - length + 1))


def prepare_training_set(
    store: Store,
    settings: TrainingSetSettings,
    verify: VerifySettings,
    source: str,
    benchmarks: Sequence[ArtifactRef],
    operation: OperationSettings = OperationSettings(),  # noqa: B008 - settings are immutable
    prompts: PromptsSettings | None = None,
) -> ArtifactRef:
    """Write a prompts artifact with the training rows, in the order of their source, and the removed rows.

    The benchmarks are not its parents, so that a benchmark without an overlap does not change the artifact.

    Args:
        store: the store of the benchmarks and the artifact.
        settings: the source, and which of its rows are removed.
        verify: settings of the verifier, which must be able to read the gold answers.
        source: ``source_fingerprint`` of the source, for the manifest.
        benchmarks: the benchmarks of the run.
        operation: settings with the mirror of the hub.
        prompts: settings of the stages, for which the training set must be large enough; None for no check.

    Raises:
        DataError: the source cannot be fetched or read, has changed at the same revision, has too many unusable rows,
            or too few rows for a stage.
    """
    with store.write("prompts", settings=settings, parents={}, seed=0) as draft:
        setting = "prompts.source" if settings.source.hub else "prompts.path"
        rows, unusable, data = source_rows(store, settings.source, setting, operation.mirror, training=True)
        total = len(rows) + len(unusable)
        held_out = {row["prompt_id"] for row in share_of(rows, settings.held_out_share)}
        taken = [row for row in rows if row["prompt_id"] not in held_out]
        _check_usable(unusable, total, settings)
        unreadable = unreadable_golds(taken, settings.source, verify, "training")
        unusable += [Unusable("", name, f"gold answer {answer!r}") for name, answer in unreadable.items()]
        taken = [row for row in taken if row["prompt_id"] not in unreadable]
        _check_usable(unusable, total, settings)
        problems = _problems(store, benchmarks, settings.overlap_words)
        found = {row["prompt_id"]: overlap for row in taken if (overlap := problems.find(row["prompt"]))}
        kept = [row for row in taken if row["prompt_id"] not in found]
        schema = TRAINING_CHATS if any(row.get("messages") for row in kept) else TRAINING
        write_table(draft.path / TRAINING_FILE, kept, schema)
        write_table(draft.path / REMOVED_FILE, _removed_rows(unusable, found), REMOVED)
        draft.facts.update(
            prompts=len(kept),
            rows=total,
            unusable=len(unusable),
            held_out=total - len(unusable) - len(taken),
            overlapping=dict(Counter(one.benchmark for one in found.values())),
            equal=sum(not one.words for one in found.values()),
            removed=[*(one.prompt_id or one.place for one in unusable), *found][:_NOTED],
            source=source,
            data=data,
        )
        if unusable:
            logger().warning("training set: %d unusable rows are left out: %s", len(unusable), _list_unusable(unusable))
        logger().info("%s", _describe_facts(draft.facts))
    if prompts is not None:
        with_template(_training_set(store, prompts, draft.ref).to_pylist(), prompts)
    return draft.ref


def prepare_stage(
    store: Store, settings: PromptsSettings, training: ArtifactRef, stage: int, seed: int
) -> list[ArtifactRef]:
    """Write the prompts of a stage, which counts from 0, as an artifact for each shard.

    Each pass over the training set is shuffled by ``seed`` and divided into whole stages, so that no stage has a prompt
    twice.

    Raises:
        DataError: the training set has fewer prompts than a stage takes.
    """
    table = _training_set(store, settings, training)
    count, there = settings.prompts_per_stage, table.num_rows
    epoch, place = divmod(stage, there // count)
    order = np.random.default_rng([seed, epoch]).permutation(there)[place * count : (place + 1) * count]
    chosen = with_template(table.take(order).to_pylist(), settings)
    shards = []
    for start in range(0, count, settings.prompts_per_shard):
        rows = chosen[start : start + settings.prompts_per_shard]
        with store.write("prompts", settings=settings, parents={"training_set": training}, seed=seed) as draft:
            write_prompts(draft.path, rows)
            draft.facts.update(stage=stage, prompts=len(rows))
        shards.append(draft.ref)
    return shards


def _training_set(store: Store, settings: PromptsSettings, training: ArtifactRef) -> pa.Table:
    table = read_table(store.path(training) / TRAINING_FILE)
    count, there = settings.prompts_per_stage, table.num_rows
    if there < count:
        raise DataError(
            f"prompts.prompts_per_stage: {count}, but there are {there} training prompts; allowed: 1 to {there}."
        )
    return table


def _removed_rows(unusable: Sequence[Unusable], found: Mapping[str, Overlap]) -> list[Row]:
    nothing = {"benchmark": "", "problem": ""}
    return [{"prompt_id": one.prompt_id, "place": one.place, "reason": one.reason, **nothing} for one in unusable] + [
        {
            "prompt_id": name,
            "place": "",
            "reason": f"{one.words} words shared" if one.words else "equal",
            "benchmark": one.benchmark,
            "problem": one.problem,
        }
        for name, one in found.items()
    ]


def _check_usable(unusable: Sequence[Unusable], total: int, settings: TrainingSetSettings) -> None:
    if len(unusable) <= settings.max_unusable_share * total:
        return
    first = unusable[0]
    named = first.place or f"prompt_id {first.prompt_id!r}"
    hint = "" if first.place else " cannot be read by the verifier"
    raise DataError(
        f"{named}: {first.reason}{hint}. {len(unusable)} of {total} rows cannot be trained on: "
        f"{_list_unusable(unusable)}; prompts.max_unusable_share allows {percent(settings.max_unusable_share)}. "
        "To fix it: correct them, or raise it: they are left out."
    )


def _list_unusable(unusable: Sequence[Unusable]) -> str:
    return first_names([f"{one.prompt_id or one.place} ({one.reason})" for one in unusable], _NAMED)


def _problems(store: Store, benchmarks: Sequence[ArtifactRef], words: int) -> Problems:
    problems = Problems(words)
    for folder in store.paths(benchmarks):
        rows = read_table(folder / PROMPTS_FILE, ["prompt_id", "problem"]).to_pylist()
        problems.add(BenchmarkNote.read(folder).name, rows)
    return problems


def _describe_facts(facts: Mapping[str, Any]) -> str:
    left_out = {"unusable": facts["unusable"], "held out": facts["held_out"]}
    left_out |= {f"asked by {name}": count for name, count in facts["overlapping"].items()}
    told = ", ".join(f"{count} {why}" for why, count in left_out.items() if count) or "none"
    return f"training set: {facts['prompts']} of {facts['rows']} rows; left out: {told}"
