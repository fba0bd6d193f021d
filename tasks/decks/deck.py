"""A deck: what a step made, with its settings, its time and its digest.

One template shows any artifact: numbers of its manifest as tiles, bars and tables, metrics of its updates as curves,
and the first rows of its tables. Files that are not on this machine are left out, as a deck fetches nothing.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from jinja2 import TemplateError

from tasks.artifacts import ArtifactRef, Store
from tasks.artifacts.provenance import process
from tasks.artifacts.records import Manifest
from tasks.artifacts.tables import read_table
from tasks.errors import UserError
from tasks.report.examples import shown
from tasks.report.formats import duration, label, number, percent, percent_range, size
from tasks.report.look import render
from tasks.report.parameters import OTHER_STEPS, parameters_of
from tasks.report.updates import number_columns

DRAWING_ERRORS = (
    UserError,  # an artifact that is not there any more, a store that does not answer
    OSError,
    pa.ArrowException,  # a file that is not one of ours
    TemplateError,
    LookupError,  # artifacts of other versions of the code can have other facts, columns and settings, of other types
    TypeError,
    ValueError,
    AttributeError,
)
"""What can go wrong with a deck, and does no harm to the step."""
ROWS = 12
"""Most rows of anything: a deck is looked at, not searched."""
_FIRST = 4
"""Rows of a table that are shown with their texts."""
_PAGE, _NUMBERS, _SHAPE = "report.html", ("metrics.json", "result.json"), "config.json"
_CURVES = ("metrics.parquet", "curve.parquet")
_TEXTS = ("prompts.parquet", "training.parquet", "rollouts.parquet", "verdicts.parquet", "samples.parquet")
_MAPPED = {"verdicts": "rollouts", "average": "evaluations"}
"""Roles of parents that a map task made, by kind. Flyte shows no deck of a map task, so that of the next step does."""
_NOT_SHOWN = ("policy",)
"""Columns of texts that nobody reads."""
_METRICS = (
    "reward",
    "accuracy",
    "response_tokens",
    "loss",
    "grad_norm",
    "clip_fraction",
    "veto_fraction",
    "zero_advantage_share",
    "ess",
    "kl_k3",
    "entropy",
    "ratio_max_negative",
    "ratio_p01_negative",
)
"""Metrics of the updates (docs/metrics.md) of which a deck has curves, six in a figure."""


@dataclass(frozen=True)
class _Table:
    """Rows of texts of any length, under headings unless all of these are empty."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass
class _Contents:
    """What a deck shows of the numbers of artifacts."""

    tiles: dict[str, str] = field(default_factory=dict)
    bars: dict[str, dict[str, float]] = field(default_factory=dict)
    """Counts by what is counted."""
    tables: list[_Table] = field(default_factory=list)

    def add(self, values: Mapping[str, Any]) -> None:
        """Add numbers by name: single ones as tiles, counts as bars, records as a table. Anything else is left out."""
        for name, value in values.items():
            if isinstance(value, Mapping) and value and all(_is_number(one) for one in value.values()):
                if "value" in value:
                    self.tiles[label(name)] = _estimate(value)
                elif any(value.values()):
                    self.bars[label(name)] = dict(list(value.items())[:ROWS])
            elif isinstance(value, Mapping):
                self.add({f"{name} {key}": one for key, one in value.items() if isinstance(one, Mapping)})
            elif isinstance(value, list) and value and all(isinstance(one, Mapping) for one in value):
                self.tables.append(_table(label(name), [_scalars(one) for one in value]))
            elif name == "warning":
                self.tables.insert(0, _Table("Warning", [""], [[value]]))
            elif text := _text(value):
                self.tiles[label(name)] = text


def draw_deck(store: Store, made: ArtifactRef | Sequence[ArtifactRef], started: float) -> dict[str, str]:
    """Return pages about what a step made, by their titles. They are HTML without scripts or anything from elsewhere.

    Args:
        store: where the artifacts are.
        made: one artifact, or some of one kind.
        started: Unix seconds at which the step was asked for: what is older was found in the store.
    """
    refs = [made] if isinstance(made, ArtifactRef) else list(made)
    manifests = [store.manifest(ref) for ref in refs]
    first, task = manifests[0], manifests[0].task or manifests[0].kind
    role = _MAPPED.get(first.kind, "")
    mapped = [store.manifest(ref) for ref in first.parents.get(role, ())]
    whole = _files(store, [first], [_PAGE])
    contents = _Contents()
    if len(manifests) == 1:
        contents.add(first.facts)
        for path in () if whole else _files(store, manifests, _NUMBERS):
            contents.add(json.loads(path.read_text(encoding="utf-8")))
    for title, some in (("Artifacts", manifests[1:] and manifests), (role.capitalize(), mapped)):
        contents.tables += [_table(title, map(_record, some))] if some else []
    contents.tables += [_first_rows(path) for path in _files(store, [first, *mapped[:1]], _TEXTS)]
    for path in _files(store, [first], [_SHAPE]):
        shape = _scalars(json.loads(path.read_text(encoding="utf-8")))
        contents.tables.append(_Table("Model", ["", ""], [[label(name), text] for name, text in shape.items()]))
    inside = {name: first.settings[name] for name in OTHER_STEPS if name in first.settings}
    page = _page(
        eyebrow=f"{task}, seed {first.seed}",
        title=str(first.ref) + (f" and {len(refs) - 1} more" if len(refs) > 1 else ""),
        message=_when(manifests, started),
        contents=contents,
        figures=[svg for path in _files(store, [first], _CURVES) for svg in _draw_curves(path)],
        settings={task: first.settings, **inside},
        phases=_phases(manifests),
        manifests=manifests,
        files=[entry.bytes for manifest in manifests for entry in manifest.files.values()],
        this_process=process().name,
    )
    return {"report": whole[0].read_text(encoding="utf-8"), "artifact": page} if whole else {task: page}


def draw_unfinished(task: str, settings: Mapping[str, Mapping[str, Any]], error: UserError, seconds: float) -> str:
    """Return a page about a step that ended without a result.

    Args:
        task: the step.
        settings: settings of the step, by what they are for.
        error: how it ended; that of an interrupted step says how far it came.
        seconds: the time that it took.
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
    groups = {name: parameters_of([own], {}) for name, own in settings.items()}
    shown = {name: rows for name, rows in groups.items() if rows}
    return render("decks/deck.html.j2", settings=shown, rows=ROWS, size=size, first_of=_first_of, **values)


def _files(store: Store, manifests: Iterable[Manifest], names: Iterable[str]) -> list[Path]:
    """Return the files of these names that are on this machine."""
    paths = [store.root / one.ref.folder / name for one in manifests for name in names if name in one.files]
    return [path for path in paths if path.is_file()]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _estimate(estimate: Mapping[str, float]) -> str:
    """Return ``76.2 % (73.2 to 79.2)``; a mean without an interval stands alone."""
    interval = f" ({percent_range(estimate['low'], estimate['high'])})" if "low" in estimate else ""
    return percent(estimate["value"]) + interval


def _text(value: object) -> str:
    """Return a value as a short text; empty for what has none."""
    if isinstance(value, list) and all(_is_number(one) or isinstance(one, str) for one in value):
        return ", ".join(map(_text, value[:ROWS]))
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1000 else number(value)
    return number(value) if _is_number(value) else value if isinstance(value, str) else ""  # type: ignore[arg-type]


def _scalars(values: Mapping[str, Any]) -> dict[str, str]:
    texts = {name: _text(value) for name, value in values.items() if not isinstance(value, list)}
    return {name: text for name, text in texts.items() if text}


def _record(manifest: Manifest) -> dict[str, str]:
    return {"artifact": str(manifest.ref), "seconds": number(manifest.timings.seconds), **_scalars(manifest.facts)}


def _first_of(rows: Sequence[object]) -> str:
    return f", the first {ROWS} of {len(rows)}" if len(rows) > ROWS else ""


def _table(title: str, records: Iterable[Mapping[str, str]]) -> _Table:
    """Return a row per record, with a column for every name that occurs."""
    rows = list(records)
    names = list(dict.fromkeys(name for row in rows for name in row))
    cells = [[row.get(name, "") for name in names] for row in rows[:ROWS]]
    return _Table(title + _first_of(rows), [label(name) for name in names], cells)


def _first_rows(path: Path) -> _Table:
    """Return the columns of the first rows of a table that are texts."""
    with pq.ParquetFile(path) as file:
        names = [one.name for one in file.schema_arrow if pa.types.is_string(one.type) and one.name not in _NOT_SHOWN]
        rows = next(file.iter_batches(batch_size=_FIRST, columns=names), pa.RecordBatch.from_pylist([])).to_pylist()
    cells = [[shown(row[name] or "") for name in names] for row in rows]
    return _Table(f"First rows of {path.name}", names, cells)


def _draw_curves(path: Path) -> Iterator[str]:
    from tasks.report.update_figures import small_curves  # Loads matplotlib, which steps without curves do not need.

    columns = number_columns([read_table(path)])
    known = [name for name in _METRICS if name in columns]
    for place in range(0, len(known), 6):
        some = {name: columns[name] for name in known[place : place + 6]}
        drawn = small_curves(columns["update"], some, f"{path.stem}-{place}")
        if drawn:
            yield drawn


def _when(manifests: list[Manifest], started: float) -> str:
    last = max(manifest.timings.finished for manifest in manifests)
    seconds = duration(sum(manifest.timings.seconds for manifest in manifests))
    moment = datetime.fromtimestamp(last, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    return f"{'Made' if last >= started else 'Found in the store. Made'} in {seconds}; finished at {moment}."


def _phases(manifests: list[Manifest]) -> dict[str, float]:
    """Return the seconds of every phase, and the rest."""
    seconds: dict[str, float] = {}
    for manifest in manifests:
        for phase, spent in manifest.timings.phases.items():
            seconds[phase] = seconds.get(phase, 0.0) + spent
    inside = sum(seconds.values())
    return seconds | {"rest": max(0.0, sum(manifest.timings.seconds for manifest in manifests) - inside)}
