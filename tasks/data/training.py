"""Training set of a run, without the problems of its benchmarks, and the prompts of a stage.

A prompt overlaps with a problem of a benchmark if the two are equal, or share a long run of words.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from tasks.data.benchmarks import BenchmarkNote, source_rows, unreadable_golds, with_template, write_prompts
from tasks.data.files import Row, Unusable, share_of
from tasks.errors import DataError
from tasks.formats import first_names, percent, shorten
from tasks.process.logs import logger
from tasks.settings import OperationSettings, PromptsSettings, TrainingSetSettings, VerifySettings
from tasks.store import ArtifactRef, Store
from tasks.store.layout import PROMPTS_FILE, REMOVED_FILE, TRAINING_FILE
from tasks.store.tables import REMOVED, TRAINING, TRAINING_CHATS, read_table, take_rows, write_table

_NAMED = 8
"""Largest number of rows in a message."""
_NOTED = 1000
"""Largest number of ids in a manifest; removed.parquet has all ids."""
FEWEST_WORDS = 8
"""Fewest words of a problem that is searched for by its words; a shorter one must be equal as a whole.

The decontamination of GPT-3 used 8 to 13 words (arXiv 2005.14165)."""
_COMMON, _COMMON_SHARE = 3, 0.05
"""A run of words is searched for only if at most 3 problems, or 5 % of the benchmark's problems, have it."""
_PHRASE_SHARE = 0.25
"""A run of words that more than 3 and more than this share of the training prompts have is their standard phrase."""
_WORD = re.compile(r"\w+")
_SYMBOL = re.compile(r"\w+|[^\w\s]")
_Words = tuple[str, ...]


@dataclass(frozen=True)
class Overlap:
    """A problem of a benchmark that a prompt overlaps with."""

    benchmark: str
    problem: str
    """prompt_id of the problem."""
    words: int
    """Length of the shared run, in words; 0 if prompt and problem are equal."""


class ProblemIndex:
    """An index of the problems of benchmarks, by runs of ``words`` words; with 0, only equal problems are found."""

    def __init__(self, words: int) -> None:
        self._words = words
        self._whole: dict[_Words, Overlap] = {}
        self._runs: dict[int, dict[_Words, Overlap]] = {}

    def add(self, benchmark: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Add the problems of a benchmark: rows with prompt_id and problem.

        For a problem that is shorter than a run, all of its words are the run, if it has at least ``FEWEST_WORDS``.
        Runs that many problems of the benchmark share are its standard phrases, and are not searched for.
        """
        overlaps: dict[_Words, Overlap] = {}
        times: Counter[_Words] = Counter()
        for row in rows:
            name, text = str(row["prompt_id"]), _normalize(row["problem"])
            self._whole.setdefault(_symbols(text), Overlap(benchmark, name, 0))
            words = _WORD.findall(text)
            length = min(self._words, len(words))
            if length >= min(FEWEST_WORDS, self._words) > 0:
                runs = set(_word_runs(words, length))
                times.update(runs)
                overlaps |= {run: Overlap(benchmark, name, length) for run in runs if run not in overlaps}
        for run, overlap in overlaps.items():
            if times[run] <= max(_COMMON, _COMMON_SHARE * len(rows)):
                self._runs.setdefault(len(run), {}).setdefault(run, overlap)

    def remove_phrases(self, prompts: Sequence[str]) -> None:
        """Do not search for runs that many of the prompts have, such as an instruction that all of them begin with."""
        times = Counter(run for prompt in prompts for run in {*self._shared(_normalize(prompt))})
        most = max(_COMMON, _PHRASE_SHARE * len(prompts))
        for run in (run for run, count in times.items() if count > most):
            del self._runs[len(run)][run]

    def find(self, prompt: str) -> Overlap | None:
        """Return the first problem that equals a prompt, ignoring case and spaces, or shares a run of words with it."""
        text = _normalize(prompt)
        if overlap := self._whole.get(_symbols(text)):
            return overlap
        run = next(self._shared(text), None)
        return self._runs[len(run)][run] if run else None

    def _shared(self, text: str) -> Iterator[_Words]:
        words = _WORD.findall(text)
        for length, runs in sorted(self._runs.items(), reverse=True):
            yield from (run for run in _word_runs(words, length) if run in runs)


def _normalize(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold()


def _symbols(text: str) -> _Words:
    """Return words and signs: without the signs, 1 + 2 would equal 1 - 2."""
    return tuple(_SYMBOL.findall(text))


def _word_runs(words: list[str], length: int) -> Iterator[_Words]:
    return (tuple(words[start : start + length]) for start in range(len(words) - length + 1))


def prepare_training_set(
    store: Store,
    settings: TrainingSetSettings,
    verify: VerifySettings,
    source: str,
    benchmarks: Sequence[ArtifactRef],
    operation: OperationSettings = OperationSettings(),
    prompts: PromptsSettings | None = None,
) -> ArtifactRef:
    """Write a prompts artifact with the rows of a training set, in the order of ``read_rows``, and the removed rows.

    The benchmarks are not parents of the artifact, so that a benchmark without overlap does not change its digest.
    ``source`` is the result of ``source_fingerprint`` when the run started; empty if it is not known. The size of a
    stage is checked if ``prompts`` is given.

    Raises:
        DataError: the source cannot be fetched or read, changed under its revision or since the run started, has too
            many unusable rows, or has too few prompts for a stage.
    """
    with store.write("prompts", settings=settings, parents={}, seed=0) as draft:
        setting = "prompts.source" if settings.source.hub else "prompts.path"
        mirror = operation.mirror
        rows, unusable, data = source_rows(store, settings.source, setting, source, mirror, verify.kind, training=True)
        total = len(rows) + len(unusable)
        held_out = {row["prompt_id"] for row in share_of(rows, settings.source.share * settings.held_out_share)}
        rows = [row for row in rows if row["prompt_id"] not in held_out]
        _check_usable(unusable, total, settings)
        unreadable = unreadable_golds(rows, settings.source, verify, "training")
        unusable += [Unusable("", name, f"gold answer {answer!r}") for name, answer in unreadable.items()]
        usable = [row for row in rows if row["prompt_id"] not in unreadable]
        _check_usable(unusable, total, settings)
        index = _problem_index(store, benchmarks, settings.overlap_words)
        index.remove_phrases([row["prompt"] for row in usable])
        overlaps = {row["prompt_id"]: overlap for row in usable if (overlap := index.find(row["prompt"]))}
        training = [row for row in usable if row["prompt_id"] not in overlaps]
        schema = TRAINING_CHATS if any(row.get("messages") for row in training) else TRAINING
        write_table(draft.path / TRAINING_FILE, training, schema)
        write_table(draft.path / REMOVED_FILE, _removed_rows(unusable, overlaps), REMOVED)
        draft.facts.update(
            prompts=len(training),
            rows=total,
            unusable=len(unusable),
            held_out=total - len(unusable) - len(usable),
            overlapping=dict(Counter(overlap.benchmark for overlap in overlaps.values())),
            equal=sum(not overlap.words for overlap in overlaps.values()),
            removed=[*(row.prompt_id or row.place for row in unusable), *overlaps][:_NOTED],
            source=source,
            data=data,
        )
        if unusable:
            logger().warning("training set: %d unusable rows are removed: %s", len(unusable), _list_unusable(unusable))
        logger().info("%s", _describe_facts(draft.facts))
    if prompts is not None:
        with_template(_training_set(store, prompts, draft.ref).to_pylist(), prompts)
    return draft.ref


def prepare_prompts(
    store: Store, settings: PromptsSettings, training: ArtifactRef, stage: int, seed: int
) -> list[ArtifactRef]:
    """Write the prompts of a stage, which counts from 0, as one artifact per shard.

    Every pass over the training set is shuffled by ``seed`` and cut into whole stages, so that no prompt comes twice in
    a stage.

    Raises:
        DataError: the training set has fewer prompts than a stage takes.
    """
    table = _training_set(store, settings, training)
    count, total = settings.prompts_per_stage, table.num_rows
    epoch, position = divmod(stage, total // count)
    order = np.random.default_rng([seed, epoch]).permutation(total)[position * count : (position + 1) * count]
    rows = with_template(take_rows(table, order), settings)
    shards = []
    for start in range(0, count, settings.prompts_per_shard):
        shard = rows[start : start + settings.prompts_per_shard]
        with store.write("prompts", settings=settings, parents={"training_set": training}, seed=seed) as draft:
            write_prompts(draft.path, shard)
            draft.facts.update(stage=stage + 1, prompts=len(shard))
        shards.append(draft.ref)
    return shards


def _training_set(store: Store, settings: PromptsSettings, training: ArtifactRef) -> pa.Table:
    table = read_table(store.path(training) / TRAINING_FILE)
    count, total = settings.prompts_per_stage, table.num_rows
    if total < count:
        none = "all are held out or removed. To fix it: give more rows, or lower prompts.held_out_share"
        raise DataError(
            f"prompts.prompts_per_stage: {count}, but there are {total} training prompts; "
            f"{f'allowed: 1 to {total}' if total else none}."
        )
    return table


def _removed_rows(unusable: Sequence[Unusable], overlaps: Mapping[str, Overlap]) -> list[Row]:
    rows: list[Row] = [{**asdict(row), "benchmark": "", "problem": ""} for row in unusable]
    for name, overlap in overlaps.items():
        reason = f"{overlap.words} words shared" if overlap.words else "equal"
        rows.append({**asdict(overlap), "prompt_id": name, "place": "", "reason": reason})
    return rows


def _check_usable(unusable: Sequence[Unusable], total: int, settings: TrainingSetSettings) -> None:
    if len(unusable) <= settings.max_unusable_share * total:
        return
    first = unusable[0]
    name = first.place or f"prompt_id {first.prompt_id!r}"
    hint = "" if first.place else " cannot be read by the verifier (docs/verifying.md says what it reads)"
    others = f", also {_list_unusable(unusable[1:])}" if len(unusable) > 1 else ""
    raise DataError(
        f"{name}: {first.reason}{hint}. {len(unusable)} of {total} rows cannot be trained on{others}; "
        f"prompts.max_unusable_share allows {percent(settings.max_unusable_share)}. "
        "To fix it: correct these rows, or raise prompts.max_unusable_share, and they are removed."
    )


def _list_unusable(unusable: Sequence[Unusable]) -> str:
    return first_names([f"{row.place or row.prompt_id} ({shorten(row.reason)})" for row in unusable], _NAMED)


def _problem_index(store: Store, benchmarks: Sequence[ArtifactRef], words: int) -> ProblemIndex:
    index = ProblemIndex(words)
    for folder in store.paths(benchmarks):
        rows = read_table(folder / PROMPTS_FILE, ["prompt_id", "problem"]).to_pylist()
        index.add(BenchmarkNote.read(folder).name, rows)
    return index


def _describe_facts(facts: Mapping[str, Any]) -> str:
    removed = {"unusable": facts["unusable"], "held out": facts["held_out"]}
    removed |= {f"also in {name}": count for name, count in facts["overlapping"].items()}
    counts = ", ".join(f"{count} {reason}" for reason, count in removed.items() if count) or "none"
    return f"training set: {facts['prompts']} of {facts['rows']} rows; left out: {counts}"
