"""The step that reads the problems of a benchmark, and rows of prompts from a source."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import ConfigDict

from tasks.data.arithmetic import form_of, split
from tasks.data.files import Row, Unusable, read_rows
from tasks.data.sources import source_files
from tasks.errors import DataError, SettingsError
from tasks.formats import first_names, pluralize
from tasks.process.logs import logger
from tasks.settings import (
    BenchmarkSettings,
    FunctionVerifySettings,
    OperationSettings,
    PromptsSettings,
    SourceSettings,
    VerifySettings,
)
from tasks.settings.base import FlyteModel
from tasks.settings.data_sets import HELD_OUT
from tasks.store import ArtifactRef, Store
from tasks.store.layout import PROMPTS_FILE
from tasks.store.tables import CHATS, PROMPTS, write_table
from tasks.verify.pool import shared_verifier, shorten
from tasks.verify.verdicts import Outcome

FILE = "benchmark.json"
_NAMED = 8
"""Most gold answers that a message names."""
_SHOWN_CHARACTERS = 60


class BenchmarkNote(FlyteModel):
    """Name of a benchmark and kind of its verifier, for the evaluation."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    answer_type: str

    @classmethod
    def read(cls, folder: Path) -> "BenchmarkNote":
        """Return the note in the folder of a benchmark's artifact."""
        return cls.model_validate_json((folder / FILE).read_text(encoding="utf-8"))


def prepare_benchmark(
    store: Store,
    settings: BenchmarkSettings,
    verify: VerifySettings,
    source: str,
    operation: OperationSettings = OperationSettings(),  # noqa: B008 - settings are immutable
) -> ArtifactRef:
    """Write a prompts artifact with the problems of a benchmark, the same for every seed.

    Args:
        store: the store of the artifact.
        settings: complete settings (see ``measures``).
        verify: settings of the verifier, which must be able to read the gold answers.
        source: ``source_fingerprint`` of the source, for the manifest.
        operation: settings with the mirror of the hub.

    Raises:
        DataError: the source cannot be fetched or read, has too few problems, has changed at the same revision, or too
            many of its gold answers cannot be read.
    """
    place = _place(settings)
    if settings.source is None:
        raise ValueError(f"{place} has no source")
    with store.write("prompts", settings=settings, parents={}, seed=0) as draft:
        rows, unusable, data = source_rows(store, settings.source, f"{place}.source", operation.mirror)
        rows = _first(rows, unusable, settings)
        unreadable = unreadable_golds(rows, settings.source, verify, settings.name)
        _check_readable(unreadable, len(rows), settings)
        write_prompts(draft.path, with_template(rows, settings))
        note = BenchmarkNote(name=settings.name, answer_type=verify.kind)
        (draft.path / FILE).write_text(note.model_dump_json(), encoding="utf-8")
        draft.facts.update(
            benchmark=settings.name, prompts=len(rows), source=source, data=data, unreadable=sorted(unreadable)
        )
    return draft.ref


def source_rows(
    store: Store, source: SourceSettings, setting: str, mirror: str | None, training: bool = False
) -> tuple[list[Row], list[Unusable], dict[str, Any]]:
    """Return the usable rows of a source, its unusable rows, and facts about the data, with a digest of the rows.

    Rows of the same revision in the store must be equal. ``training`` selects training problems of generated
    arithmetic, otherwise they are the held-out ones. ``setting`` names the source in errors.
    """
    rows: list[Row]
    unusable: list[Unusable] = []
    if source.arithmetic is not None:
        problems = split(list(source.arithmetic.levels), source.arithmetic.held_out_share)[0 if training else 1]
        form = form_of(source.arithmetic)
        rows = [
            {"prompt_id": one.prompt_id, "prompt": one.prompt, "answer": one.gold(form), "level": one.level}
            for one in problems
        ]
    else:
        with source_files(source, setting, mirror) as files:
            rows, unusable = read_rows(files, source)
    content = json.dumps([[row["prompt_id"], row.get("messages") or row["prompt"], row["answer"]] for row in rows])
    data = {
        "hub": source.hub,
        "revision": source.revision if source.hub else None,
        "commit": source.pinned or None,
        "files": source.files,
        "fields": [source.prompt, source.answer, source.id, source.gold],
        "share": source.share,
        "rows": hashlib.sha256(content.encode()).hexdigest(),
    }
    if source.hub is not None:
        _check_unchanged(store, data, setting)
    return rows, unusable, data


def _check_unchanged(store: Store, data: dict[str, Any], setting: str) -> None:
    for manifest in store.manifests("prompts"):
        before = manifest.facts.get("data") or {}
        same = all(before.get(name) == data[name] for name in ("hub", "files", "fields", "share"))
        named = [name for name in ("revision", "commit") if data[name] and before.get(name) == data[name]]
        if same and named and before["rows"] != data["rows"]:
            raise DataError(
                f"{setting}: {data['hub']} changed under its revision {data['revision']}: {manifest.ref} in this store "
                f"has rows {before['rows'][:12]} (commit {before['commit'] or 'unknown'}), there are rows "
                f"{data['rows'][:12]} (commit {data['commit'] or 'unknown'}). Results on the two cannot be compared. "
                "To fix it: correct the mirror, give source.revision the commit that is meant, or take another store."
            )


def unreadable_golds(rows: Sequence[Row], source: SourceSettings, verify: VerifySettings, name: str) -> dict[str, str]:
    """Return the gold answers that math-verify does not find equal to themselves, by prompt_id, shortened.

    Generated answers are readable, and tests of programs are read when a program is judged. A reward function is called
    once, with the first prompt and its answer as response, and is refused if it crashes. ``name`` is the title of the
    progress bar.
    """
    if isinstance(verify, FunctionVerifySettings):
        for row in rows[:1]:
            asked = (row["answer"], row["answer"], row["prompt"])
            (verdict,) = shared_verifier(verify).verify([asked], "reward function")
            if verdict.outcome is Outcome.CRASHED:
                raise SettingsError(
                    f"verify.function: {verify.function} crashed when it was called with the first prompt and, as "
                    f"response and answer, {shorten(row['answer'], _SHOWN_CHARACTERS)!r}. The traceback is above. To "
                    "fix it: return a finite number, an Outcome, or None where the response has no answer, whatever "
                    "the response is."
                )
    if verify.kind != "math" or source.arithmetic is not None:
        return {}
    pairs = [(row["answer"], rf"\boxed{{{row['answer']}}}") for row in rows]
    verdicts = shared_verifier(verify).verify(pairs, f"{name} gold answers")
    return {
        row["prompt_id"]: shorten(row["answer"], _SHOWN_CHARACTERS)
        for row, verdict in zip(rows, verdicts, strict=True)
        if verdict.outcome is not Outcome.CORRECT
    }


def with_template(rows: Sequence[Row], settings: PromptsSettings | BenchmarkSettings) -> list[Row]:
    """Return rows of the prompts table (see ``CHATS``). Prompts that are messages get no template."""
    template = settings.template or "{prompt}"
    chats = [row["prompt_id"] for row in rows if row.get("messages")]
    if chats and template != "{prompt}":
        raise DataError(
            f"template: {template!r}, but the prompts are messages, which are taken as they are (prompt_id "
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
    """Write the prompts table; only chats have a date."""
    write_table(folder / PROMPTS_FILE, rows, CHATS if any(row["chat"] for row in rows) else PROMPTS)


def _first(rows: list[Row], unusable: Sequence[Unusable], settings: BenchmarkSettings) -> list[Row]:
    """Return the number of rows that the settings ask for, of held-out prompts at most all of them."""
    wanted = settings.problems or len(rows)
    # With a share, unusable rows are reported by the training set.
    whole = settings.source is not None and settings.source.share == 1
    if unusable and (whole or len(rows) < wanted):
        more = f" {len(unusable) - 1} other rows cannot be used either." if len(unusable) > 1 else ""
        raise DataError(f"{unusable[0].place}: {unusable[0].reason}.{more}")
    if not rows and settings.name == HELD_OUT:
        raise DataError(
            f"evaluate.problems: {wanted}, but no prompt is held out. Raise prompts.held_out_share, or name other "
            "benchmarks in evaluate.benchmarks."
        )
    if len(rows) < wanted and settings.name != HELD_OUT:
        raise DataError(f"{_place(settings)}.problems: {wanted}, but {len(rows)} are there; allowed: 1 to {len(rows)}.")
    if len(rows) < wanted:
        logger().warning(
            "evaluate.problems: %d, but the run holds out %s: policies are evaluated on all of these. To have more, "
            "raise prompts.held_out_share or give prompts.held_out_path",
            wanted,
            pluralize(len(rows), "prompt"),
        )
    return rows[:wanted]


def _check_readable(unreadable: dict[str, str], problems: int, settings: BenchmarkSettings) -> None:
    named = first_names([f"{name} ({answer!r})" for name, answer in unreadable.items()], _NAMED)
    told = f"{len(unreadable)} of {problems} gold answers cannot be read by the verifier: {named}"
    if len(unreadable) > settings.max_unreadable_share * problems:
        raise DataError(
            f"{_place(settings)}: {told}. To fix it: correct them, or raise its max_unreadable_share "
            f"({settings.max_unreadable_share:g}): they count as not solved."
        )
    if unreadable:
        logger().warning("%s: %s; they count as not solved", settings.name, told)


def _place(settings: BenchmarkSettings) -> str:
    return f"evaluate.benchmarks, {settings.name}"
