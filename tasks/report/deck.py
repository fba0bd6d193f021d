"""Flyte decks: the artifact of a step with its settings, its time and its digest.

One template shows artifacts of every kind: numbers of the manifest as tiles and tables, metrics of the updates as
curves, and the first rows of the tables. A deck downloads nothing: files that are not on this machine are left out.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from rich.filesize import decimal

from tasks.errors import UserError
from tasks.formats import duration, label, moment, number, percent, percent_range, printable
from tasks.process.provenance import process
from tasks.report.history import OTHER_STEPS, number_columns, parameters_of
from tasks.report.theme import render
from tasks.store import ArtifactRef, Store, layout
from tasks.store.records import Manifest
from tasks.store.tables import read_table

_MOST_ROWS = 12
"""Largest number of rows of a table."""
_FIRST = 4
"""Number of rows that are shown of a table with texts."""
_NUMBERS, _MODEL_CONFIG = (layout.ACCURACY_FILE, layout.RESULT_FILE), "config.json"
_CURVES = (layout.METRICS_FILE, layout.CURVE_FILE)
_TEXTS = (layout.PROMPTS_FILE, layout.TRAINING_FILE, layout.ROLLOUTS_FILE, layout.VERDICTS_FILE, layout.SAMPLES_FILE)
_MAPPED = {"verdicts": "rollouts", "average": "evaluations"}
"""Name of the parents that a map task made, by kind. Flyte shows no deck of a map task, so the next deck shows them."""
_METRICS = (
    *("reward", "accuracy", "response_tokens", "loss", "grad_norm", "clip_fraction", "veto_fraction"),
    *("zero_advantage_share", "ess", "kl_k3", "entropy", "ratio_max_negative", "ratio_p01_negative"),
)
"""Metrics of the updates (docs/metrics.md) that a deck draws as curves, six per figure."""


class _Table(NamedTuple):
    """A table of texts. The line of headings is left out if all headings are empty."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass
class _Contents:
    tiles: dict[str, str] = field(default_factory=dict)
    tables: list[_Table] = field(default_factory=list)

    def add(self, values: Mapping[str, Any]) -> None:
        """Add values by name: single values as tiles, counts and records as tables. Other values are left out."""
        for name, value in values.items():
            if name == "warning":
                self.tables.insert(0, _Table("Warning", [""], [[value]]))
            elif text := _text(value):
                self.tiles[label(name)] = text
            elif isinstance(value, Mapping) and all(_is_number(one) for one in value.values()):
                if any(value.values()):
                    counts = {key: number(count, 3) for key, count in list(value.items())[:_MOST_ROWS]}
                    self.tables.append(_table(label(name), [counts]))
            elif isinstance(value, Mapping):
                self.add({f"{name} {key}": one for key, one in value.items() if isinstance(one, Mapping)})
            elif isinstance(value, list) and value and all(isinstance(one, Mapping) for one in value):
                self.tables.append(_table(label(name), [_scalars(one) for one in value]))


def draw_deck(store: Store, artifacts: ArtifactRef | Sequence[ArtifactRef], started: float) -> dict[str, str]:
    """Return the pages of a step by title, as self-contained HTML without scripts.

    Args:
        store: the store with the artifacts.
        artifacts: the artifact of the step, or its artifacts if it has several of one kind.
        started: Unix seconds at which the step was called. An artifact that finished earlier came from the cache.
    """
    manifests = [store.manifest(ref) for ref in ([artifacts] if isinstance(artifacts, ArtifactRef) else artifacts)]
    first, *others = manifests
    task, shards = first.task or first.kind, _MAPPED.get(first.kind, "")
    mapped = [store.manifest(ref) for ref in first.parents.get(shards, ())]
    report = _files(store, [first], [layout.PAGE_FILE])
    contents = _Contents()
    if not others:
        contents.add(first.facts)
        for path in () if report else _files(store, manifests, _NUMBERS):
            contents.add(json.loads(path.read_text(encoding="utf-8")))
    for title, some in (("Artifacts", others and manifests), (shards.capitalize(), mapped)):
        contents.tables += [_table(title, map(_record, some))] if some else []
    contents.tables += [_first_rows(path) for path in _files(store, [first, *mapped[:1]], _TEXTS)]
    for path in _files(store, [first], [_MODEL_CONFIG]):
        config = _scalars(json.loads(path.read_text(encoding="utf-8")))
        contents.tables.append(_Table("Model", ["", ""], [[label(name), text] for name, text in config.items()]))
    finished = max(manifest.timings.finished for manifest in manifests)
    seconds = sum(manifest.timings.seconds for manifest in manifests)
    origin = "Made" if finished >= started else "Found in the store. Made"
    names = dict.fromkeys(name for manifest in manifests for name in manifest.timings.phases)
    phases = {name: sum(manifest.timings.phases.get(name, 0.0) for manifest in manifests) for name in names}
    phases["rest"] = max(0.0, seconds - sum(phases.values()))
    inside = {name: first.settings[name] for name in OTHER_STEPS if name in first.settings}
    page = _page(
        eyebrow=f"{task}, seed {first.seed}",
        title=str(first.ref) + (f" and {len(others)} more" if others else ""),
        message=f"{origin} in {duration(seconds)}; finished at {moment(finished)}.",
        contents=contents,
        figures=[svg for path in _files(store, [first], _CURVES) for svg in _draw_curves(path)],
        settings={task: first.settings, **inside},
        phases=phases,
        manifests=manifests,
        files=[entry.bytes for manifest in manifests for entry in manifest.files.values()],
        this_process=process().name,
    )
    return {"report": report[0].read_text(encoding="utf-8"), "artifact": page} if report else {task: page}


def draw_unfinished(task: str, settings: Mapping[str, Mapping[str, Any]], error: UserError, seconds: float) -> str:
    """Return a page about a step that ended without an artifact.

    Args:
        task: name of the step.
        settings: settings by the heading under which the page shows them.
        error: error that ended the step. The error of an interrupted step has its progress in the message.
        seconds: duration of the step.
    """
    return _page(
        eyebrow=task,
        title="not finished",
        message=error.message,
        contents=_Contents(),
        figures=[],
        settings=settings,
        phases={"in all": seconds},
        manifests=[],
    )


def _page(settings: Mapping[str, Mapping[str, Any]], **values: Any) -> str:
    groups = {step: rows for step, fields in settings.items() if (rows := parameters_of([fields]))}
    return render("report/deck.html.j2", settings=groups, rows=_MOST_ROWS, size=decimal, first_of=_first_of, **values)


def _files(store: Store, manifests: Iterable[Manifest], names: Iterable[str]) -> list[Path]:
    """Return the paths of the files with these names that are on this machine."""
    paths = [store.root / one.ref.folder / name for one in manifests for name in names if name in one.files]
    return [path for path in paths if path.is_file()]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _text(value: Any) -> str:
    if isinstance(value, Mapping) and "value" in value:
        return percent(value["value"]) + (f" ({percent_range(value['low'], value['high'])})" if "low" in value else "")
    if isinstance(value, list) and all(_is_number(one) or isinstance(one, str) for one in value):
        return ", ".join(map(_text, value[:_MOST_ROWS]))
    if isinstance(value, float) and abs(value) < 1000:
        return f"{value:.4g}"
    return number(value) if _is_number(value) else value if isinstance(value, str) else ""


def _scalars(values: Mapping[str, Any]) -> dict[str, str]:
    return {name: text for name, value in values.items() if not isinstance(value, list) and (text := _text(value))}


def _record(manifest: Manifest) -> dict[str, str]:
    return {"artifact": str(manifest.ref), "seconds": number(manifest.timings.seconds), **_scalars(manifest.facts)}


def _first_of(rows: Sequence[object]) -> str:
    return f", the first {_MOST_ROWS} of {len(rows)}" if len(rows) > _MOST_ROWS else ""


def _table(title: str, records: Iterable[Mapping[str, str]]) -> _Table:
    rows = list(records)
    names = list(dict.fromkeys(name for row in rows for name in row))
    cells = [[row.get(name, "") for name in names] for row in rows[:_MOST_ROWS]]
    return _Table(title + _first_of(rows), [label(name) for name in names], cells)


def _first_rows(path: Path) -> _Table:
    with pq.ParquetFile(path) as file:
        shown = (one.name for one in file.schema_arrow if pa.types.is_string(one.type) or one.name == "reward")
        names = [name for name in shown if name != "policy"]
        rows = next(file.iter_batches(batch_size=_FIRST, columns=names), pa.RecordBatch.from_pylist([])).to_pylist()
    cells = [[printable(_text(row[name])) for name in names] for row in rows]
    return _Table(f"First rows of {path.name}", names, cells)


def _draw_curves(path: Path) -> Iterator[str]:
    # Imported here because it loads matplotlib, which steps without curves do not need.
    from tasks.report.figures import small_curves

    columns = number_columns(read_table(path))
    names = [name for name in _METRICS if name in columns]
    for start in range(0, len(names), 6):
        some = {name: columns[name] for name in names[start : start + 6]}
        if svg := small_curves(columns["update"], some, f"{path.stem}-{start}"):
            yield svg
