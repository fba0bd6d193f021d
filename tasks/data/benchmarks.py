"""Problems of a benchmark, on which policies are evaluated; rows of prompts from a source."""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tasks.data.arithmetic import form_of, split
from tasks.data.files import Row, Unusable, read_rows
from tasks.data.sources import source_files, source_fingerprint
from tasks.errors import DamagedError, DataError, SettingsError
from tasks.formats import first_names, pluralize, shorten
from tasks.process.logs import logger
from tasks.settings import (
    BenchmarkSettings,
    FunctionVerifySettings,
    OperationSettings,
    PromptsSettings,
    SourceSettings,
    VerifySettings,
)
from tasks.settings.data_sets import HELD_OUT
from tasks.store import ArtifactRef, Store
from tasks.store.fetch import check_fingerprint
from tasks.store.files import sha256
from tasks.store.layout import BENCHMARK_FILE, PROMPTS_FILE
from tasks.store.records import Record
from tasks.store.tables import CHATS, PROMPTS, write_table
from tasks.verify.pool import shared_verifier
from tasks.verify.verdicts import FAILURES, Outcome
from tasks.verify.words import plain_text

_NAMED = 8
"""Largest number of gold answers in a message."""
_SHOWN_CHARACTERS = 60
_NO_ANSWERS = frozenset({"proof", "notfound", "not found", "unknown", "none", "n/a", "null"})
"""Words that data sets have in place of an answer. A policy could earn the reward by writing them."""


class BenchmarkNote(Record):
    """The name of a benchmark and the kind of verifier for its answers, for an evaluation.

    It is a file, not a fact, so that the artifact's digest covers it.
    """

    name: str
    answer_type: str

    @classmethod
    def read(cls, folder: Path) -> "BenchmarkNote":
        """Read the note from the folder of a benchmark's artifact."""
        return cls.model_validate_json((folder / BENCHMARK_FILE).read_text(encoding="utf-8"))


def prepare_benchmark(
    store: Store,
    settings: BenchmarkSettings,
    verify: VerifySettings,
    source: str,
    operation: OperationSettings = OperationSettings(),
) -> ArtifactRef:
    """Write a prompts artifact with the problems of a benchmark, the same for every seed.

    Every open field of the settings is filled in (see ``measurements``). ``source`` is the result of
    ``source_fingerprint`` when the run started; empty if it is not known.

    Raises:
        DataError: the source cannot be fetched or read, has too few problems, or changed under its revision or since
            the run started; or the verifier cannot read too many of the gold answers.
    """
    assert settings.source is not None
    with store.write("prompts", settings=settings, parents={}, seed=0) as draft:
        place = f"{settings.full_name}.source"
        if settings.name == HELD_OUT and settings.source.path is not None:
            place = "prompts.path, prompts.source or prompts.held_out_path"
        rows, unusable, data = source_rows(store, settings.source, place, source, operation.mirror, verify.kind)
        rows = _first_problems(rows, unusable, settings)
        unreadable = unreadable_golds(rows, settings.source, verify, settings.name)
        _check_readable(unreadable, len(rows), settings)
        write_prompts(draft.path, with_template(rows, settings))
        note = BenchmarkNote(name=settings.name, answer_type=verify.kind)
        (draft.path / BENCHMARK_FILE).write_text(note.model_dump_json(), encoding="utf-8")
        draft.facts.update(
            benchmark=settings.name, prompts=len(rows), source=source, data=data, unreadable=sorted(unreadable)
        )
    return draft.ref


def source_rows(
    store: Store,
    source: SourceSettings,
    setting: str,
    fingerprint: str,
    mirror: str | None,
    kind: str,
    training: bool = False,
) -> tuple[list[Row], list[Unusable], dict[str, Any]]:
    """Return the usable rows of a source, its unusable rows, and facts that identify the data.

    Args:
        store: artifacts of this store that were made from the same revision must be of the same files.
        source: settings of the source.
        setting: the name of the source in errors.
        fingerprint: the result of ``source_fingerprint`` when the run started; empty if it is not known.
        mirror: the mirror of the hub.
        kind: the kind of the verifier; see ``read_rows``.
        training: whether generated problems are those of the training set, or else the held-out ones.

    Raises:
        DataError: the source cannot be fetched or read, or changed under its revision or since the run started.
    """
    rows: list[Row]
    unusable: list[Unusable] = []
    content = ""
    if source.arithmetic is not None:
        problems = split(source.arithmetic)[0 if training else 1]
        form = form_of(source.arithmetic)
        rows = [
            {"prompt_id": item.prompt_id, "prompt": item.prompt, "answer": item.gold(form), "level": item.level}
            for item in problems
        ]
    else:
        with source_files(source, setting, mirror) as files:
            rows, unusable = read_rows(files, source, kind)
            content = hashlib.sha256("\n".join(sha256(file) for file, _ in files).encode()).hexdigest()
        check_fingerprint(fingerprint, source_fingerprint(source, mirror), setting)
    data = {
        "hub": source.hub,
        "revision": source.revision if source.hub else None,
        "commit": source.pinned or None,
        "files": source.files,
        "content": content,
    }
    if source.hub is not None:
        _check_unchanged(store, data, setting)
    return rows, unusable, data


def _check_unchanged(store: Store, data: dict[str, Any], setting: str) -> None:
    for manifest in store.read_manifests(store.refs("prompts")):
        if isinstance(manifest, DamagedError):  # It stops no run: the step that made the artifact makes it again.
            continue
        stored = manifest.facts.get("data") or {}
        same_source = all(stored.get(name) == data[name] for name in ("hub", "files"))
        same_version = any(data[name] and stored.get(name) == data[name] for name in ("revision", "commit"))
        if same_source and same_version and stored.get("content", data["content"]) != data["content"]:
            raise DataError(
                f"{setting}: {data['hub']} changed under its revision {data['revision']}: {manifest.ref} in this store "
                f"is of files with the digest {stored['content'][:12]} (commit {stored['commit'] or 'unknown'}), the "
                f"source has {data['content'][:12]} (commit {data['commit'] or 'unknown'}). Results on the two cannot "
                "be compared. To fix it: correct the mirror, set source.revision to the right commit, or use another "
                "store."
            )


def unreadable_golds(rows: Sequence[Row], source: SourceSettings, verify: VerifySettings, name: str) -> dict[str, str]:
    """Return the gold answers that cannot be used, by prompt_id; long ones are cut.

    They are those that math-verify does not find equal to themselves, words that stand in place of an answer, and tests
    of programs that have none of the known forms. Generated answers need no check.
    A user's function is called once, with the first prompt and its gold answer as response, and must judge it.
    ``name`` names the data set in the progress bar.

    Raises:
        SettingsError: the function did not judge it.
    """
    if isinstance(verify, FunctionVerifySettings):
        for row in rows[:1]:
            asked = (row["answer"], row["answer"], row["prompt"])
            (verdict,) = shared_verifier(verify).verify([asked], "reward function")
            if verdict.outcome in FAILURES:
                raise SettingsError(
                    f"verify.function: {verify.function}, called with the first prompt and, as response and answer, "
                    f"{shorten(row['answer'], _SHOWN_CHARACTERS)!r}: {verdict.outcome}. If it raised an error, that is "
                    "above. To fix it: return a finite number, an Outcome, or None where the response has no answer, "
                    "whatever the response is; if it needs more time or memory, raise verify.deadline_seconds "
                    f"({verify.deadline_seconds:g}) or verify.memory_mib ({verify.memory_mib})."
                )
        return {}
    if source.arithmetic is not None:
        return {}
    # A program that fails is wrong, as soon as its tests are read.
    programs, failing = verify.kind == "code", "```python\nexit(1)\n```"
    expected = Outcome.WRONG if programs else Outcome.CORRECT
    pairs = [(row["answer"], failing if programs else rf"\boxed{{{row['answer']}}}") for row in rows]
    verdicts = shared_verifier(verify).verify(pairs, f"{name} gold answers")
    return {
        row["prompt_id"]: shorten(row["answer"], _SHOWN_CHARACTERS)
        for row, verdict in zip(rows, verdicts, strict=True)
        if verdict.outcome is not expected
        or (not programs and plain_text(row["answer"]).lower().strip(" .") in _NO_ANSWERS)
    }


def with_template(rows: Sequence[Row], settings: PromptsSettings | BenchmarkSettings) -> list[Row]:
    """Return rows of the prompts table (see ``CHATS``).

    Raises:
        DataError: the settings have a template, but a prompt is a chat of messages, which takes none.
    """
    template = settings.template or "{prompt}"
    chats = [row["prompt_id"] for row in rows if row.get("messages")]
    if chats and template != "{prompt}":
        raise DataError(
            f"template: {template!r}, but prompts are messages, to which no template applies (prompt_id "
            f"{chats[0]!r} and {len(chats) - 1} others); allowed: {{prompt}}."
        )
    return [
        {
            **row,
            "prompt": template.replace("{prompt}", row["prompt"]),
            "chat": bool(settings.chat or row.get("messages")),
            "date": settings.date,
            "messages": row.get("messages"),
            "problem": row["prompt"],
        }
        for row in rows
    ]


def write_prompts(folder: Path, rows: Sequence[Row]) -> None:
    """Write the prompts table; only a table with chats has the columns of a chat."""
    write_table(folder / PROMPTS_FILE, rows, CHATS if any(row["chat"] for row in rows) else PROMPTS)


def _first_problems(rows: list[Row], unusable: Sequence[Unusable], settings: BenchmarkSettings) -> list[Row]:
    """Return the first ``problems`` rows; fewer, but not none, if they are held-out prompts.

    Raises:
        DataError: there are no rows or too few, or rows of a whole source are unusable.
    """
    wanted = settings.problems or len(rows)
    lacking = len(rows) < wanted and settings.name != HELD_OUT
    # With a share, the training set of the same source reports the unusable rows.
    complete = settings.source is not None and settings.source.share == 1
    if unusable and (complete or lacking or not rows):
        more = f" {len(unusable) - 1} other rows cannot be used either." if len(unusable) > 1 else ""
        raise DataError(f"{unusable[0].place}: {unusable[0].reason}.{more}")
    if not rows and settings.name == HELD_OUT:
        raise DataError(
            f"evaluate.problems: {wanted}, but no prompt is held out. To fix it: raise prompts.held_out_share, or name "
            "other benchmarks in evaluate.benchmarks."
        )
    if not rows:
        raise DataError(
            f"{settings.full_name}: its source has no problems. To fix it: raise source.share, or "
            "source.arithmetic.held_out_share of generated problems."
        )
    if lacking:
        raise DataError(
            f"{settings.full_name}.problems: {wanted}, but the source has {len(rows)}; allowed: 1 to {len(rows)}."
        )
    if len(rows) < wanted:
        logger().warning(
            "evaluate.problems: %d, but the run holds out only %s: policies are evaluated on all of these. To have "
            "more, raise prompts.held_out_share or set prompts.held_out_path",
            wanted,
            pluralize(len(rows), "prompt"),
        )
    return rows[:wanted]


def _check_readable(unreadable: dict[str, str], problems: int, settings: BenchmarkSettings) -> None:
    examples = first_names([f"{name} ({answer!r})" for name, answer in unreadable.items()], _NAMED)
    summary = f"{len(unreadable)} of {problems} gold answers cannot be read by the verifier: {examples}"
    if len(unreadable) > settings.max_unreadable_share * problems:
        raise DataError(
            f"{settings.full_name}: {summary}. To fix it: correct them (docs/verifying.md says what the verifier "
            f"reads), or raise its max_unreadable_share ({settings.max_unreadable_share:g}), and their problems count "
            "as not solved."
        )
    if unreadable:
        logger().warning("%s: %s; their problems count as not solved", settings.name, summary)
