"""The rows that a run trains on: read, checked, and without the problems of its benchmarks."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tasks.artifacts import ArtifactRef, Store
from tasks.artifacts.tables import REMOVED, TRAINING, TRAINING_CHATS, read_table, write_table
from tasks.errors import DataError
from tasks.logs import logger
from tasks.prompts.arithmetic import split
from tasks.prompts.benchmarks import BenchmarkNote, check_unchanged, data_facts, problem_rows
from tasks.prompts.files import Row, Unusable, read_rows, share_of
from tasks.prompts.golds import unreadable_golds
from tasks.prompts.overlap import Overlap, Problems
from tasks.prompts.sources import source_files
from tasks.prompts.step import check_stages
from tasks.report.formats import percent, some
from tasks.settings import OperationSettings, PromptsSettings, TrainingSetSettings, VerifySettings

_NAMED = 8
"""Rows that a message names."""
_NOTED = 1000
"""Ids that a manifest lists; removed.parquet has all."""


@dataclass(frozen=True)
class Removed:
    """A row that is not trained on."""

    prompt_id: str
    place: str
    """In its file; empty where the file is not at fault."""
    reason: str
    """Why it is unusable; else equal, or how many words are shared."""
    benchmark: str = ""
    problem: str = ""
    """Of the benchmark, that the prompt was found in."""


def prepare_training_set(
    store: Store,
    settings: TrainingSetSettings,
    verify: VerifySettings,
    source: str,
    benchmarks: Sequence[ArtifactRef],
    operation: OperationSettings = OperationSettings(),  # noqa: B008 - settings are immutable
    prompts: PromptsSettings | None = None,
) -> ArtifactRef:
    """A prompts artifact with all rows that can be trained on, in the order of their source, and those that cannot.

    The benchmarks are no parents of it: one that shares nothing with the training set leaves it as it is.

    Args:
        store: of the benchmarks and the artifact.
        settings: the source and what leaves it.
        verify: the verifier that must be able to read the gold answers.
        source: fingerprint of what settings name outside of the hub, noted in the manifest.
        benchmarks: that the run is measured on.
        operation: with the mirror of the hub.
        prompts: settings of stages that the training set must be able to give; None to leave them unchecked.

    Raises:
        DataError: the source cannot be fetched or read, changed under its revision, too many of its rows are unusable,
            or no stages can be made of it.
    """
    with store.write("prompts", settings=settings, parents={}, seed=0) as draft:
        rows, unusable = _rows(settings, operation.mirror)
        total = len(rows) + len(unusable)
        data = data_facts(settings.source, rows)
        check_unchanged(store, data, "prompts.source")
        held_out = {row["prompt_id"] for row in share_of(rows, settings.held_out_share)}
        taken = [row for row in rows if row["prompt_id"] not in held_out]
        _check_usable(unusable, total, settings)
        if settings.source.arithmetic is None or verify.kind == "function":
            unreadable = unreadable_golds(taken, verify, "training")
            unusable += [Unusable("", name, f"gold answer {answer!r}") for name, answer in unreadable.items()]
            taken = [row for row in taken if row["prompt_id"] not in unreadable]
            _check_usable(unusable, total, settings)
        kept, found = _without(taken, _problems(store, benchmarks, settings.overlap_words))
        removed = [Removed(one.prompt_id, one.place, one.reason) for one in unusable] + [
            Removed(name, "", f"{one.words} words shared" if one.words else "equal", one.benchmark, one.problem)
            for name, one in found.items()
        ]
        schema = TRAINING_CHATS if any(row.get("messages") for row in kept) else TRAINING
        write_table(draft.path / "training.parquet", kept, schema)
        write_table(draft.path / "removed.parquet", [asdict(one) for one in removed], REMOVED)
        draft.facts.update(
            prompts=len(kept),
            rows=total,
            unusable=len(unusable),
            held_out=total - len(unusable) - len(taken),
            overlapping=dict(Counter(one.benchmark for one in found.values())),
            equal=sum(not one.words for one in found.values()),
            removed=[one.prompt_id or one.place for one in removed][:_NOTED],
            source=source,
            data=data,
        )
        if unusable:
            logger().warning("training set: %d unusable rows are left out: %s", len(unusable), _listed(unusable))
        logger().info("%s", _told(draft.facts))
    if prompts is not None:
        check_stages(store, prompts, draft.ref)
    return draft.ref


def _rows(settings: TrainingSetSettings, mirror: str | None) -> tuple[list[Row], list[Unusable]]:
    source = settings.source
    if source.arithmetic is not None:
        training, _ = split(list(source.arithmetic.levels), source.arithmetic.held_out_share)
        return problem_rows(training, source.arithmetic), []
    with source_files(source, "prompts.source" if source.hub else "prompts.path", mirror) as files:
        return read_rows(files, source)


def _check_usable(unusable: Sequence[Unusable], total: int, settings: TrainingSetSettings) -> None:
    if not unusable:
        return
    first = unusable[0]
    if len(unusable) > settings.max_unusable_share * total:
        named = first.place or f"prompt_id {first.prompt_id!r}"
        hint = "" if first.place else " cannot be read by the verifier"
        raise DataError(
            f"{named}: {first.reason}{hint}. {len(unusable)} of {total} rows cannot be trained on: "
            f"{_listed(unusable)}; prompts.max_unusable_share allows {percent(settings.max_unusable_share)}. Mend "
            "them, or raise it: they are left out."
        )


def _listed(unusable: Sequence[Unusable]) -> str:
    return some([f"{one.prompt_id or one.place} ({one.reason})" for one in unusable], _NAMED)


def _problems(store: Store, benchmarks: Sequence[ArtifactRef], words: int) -> Problems:
    problems = Problems(words)
    for folder in store.paths(benchmarks):
        rows = read_table(folder / "prompts.parquet", ["prompt_id", "problem"]).to_pylist()
        problems.add(BenchmarkNote.read(folder).name, rows)
    return problems


def _without(rows: Sequence[Row], problems: Problems) -> tuple[list[Row], dict[str, Overlap]]:
    found = {row["prompt_id"]: overlap for row in rows if (overlap := problems.find(row["prompt"]))}
    return [row for row in rows if row["prompt_id"] not in found], found


def _told(facts: Mapping[str, Any]) -> str:
    left_out = {"unusable": facts["unusable"], "held out": facts["held_out"]}
    left_out |= {f"asked by {name}": count for name, count in facts["overlapping"].items()}
    told = ", ".join(f"{count} {why}" for why, count in left_out.items() if count) or "none"
    return f"training set: {facts['prompts']} of {facts['rows']} rows; left out: {told}"
