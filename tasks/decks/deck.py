"""A deck: what a step made, with its settings, its time and its digest."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
from jinja2 import TemplateError
from safetensors import SafetensorError

from tasks.artifacts import ArtifactRef, Store
from tasks.artifacts.provenance import process
from tasks.artifacts.records import Manifest
from tasks.decks.charts import SIZE
from tasks.decks.contents import ROWS, Contents, Shelf, Table, first_of
from tasks.decks.kinds import contents_of
from tasks.errors import UserError
from tasks.report.formats import duration, size
from tasks.report.look import render
from tasks.report.parameters import OTHER_STEPS, Parameter, parameters_of

DRAWING_ERRORS = (
    UserError,  # an artifact that is not there any more, a store that does not answer
    OSError,
    pa.ArrowException,  # a file that is none of ours
    SafetensorError,
    TemplateError,
    LookupError,  # what was made by other code can have other facts, columns and settings, of other types
    TypeError,
    ValueError,
    AttributeError,
)
"""What can go wrong with a deck, and does no harm to the step."""


@dataclass(frozen=True)
class _Phase:
    name: str
    seconds: float
    share: float


def draw_deck(store: Store, made: ArtifactRef | Sequence[ArtifactRef], started: float) -> dict[str, str]:
    """Pages about what a step made, by their titles; each is HTML without scripts or anything from elsewhere.

    Args:
        store: where the artifacts are.
        made: one artifact, or some of one kind.
        started: Unix seconds at which the step was asked for: what is older was found.
    """
    refs = [made] if isinstance(made, ArtifactRef) else list(made)
    shelf = Shelf(store, [store.manifest(ref) for ref in refs])
    first = shelf.manifests[0]
    contents = contents_of(shelf)
    page = _page(
        eyebrow=f"{first.task or first.kind}, seed {first.seed}",
        title=str(first.ref) + (f" and {len(refs) - 1} more" if len(refs) > 1 else ""),
        message=_when(shelf.manifests, started),
        contents=contents,
        settings=_settings(first.task or first.kind, first.settings),
        phases=_phases(shelf.manifests),
        tables=[_artifacts(shelf.manifests), _parents(first)],
    )
    return {"report": contents.page, "artifact": page} if contents.page else {first.task or first.kind: page}


def draw_unfinished(task: str, settings: Mapping[str, Mapping[str, Any]], error: UserError, seconds: float) -> str:
    """A page about a step that ended without a result.

    Args:
        task: the step.
        settings: of the step, by what they are for.
        error: how it ended; that of an interrupted step says how far it came.
        seconds: that it took.
    """
    return _page(
        eyebrow=task,
        title="not finished",
        message=error.message,
        contents=Contents(),
        settings={name: parameters_of([values], {}) for name, values in settings.items()},
        phases=[_Phase("in all", seconds, 1.0)],
        tables=[],
    )


def _page(**values: Any) -> str:
    return render("decks/deck.html.j2", size=SIZE, **values)


def _when(manifests: list[Manifest], started: float) -> str:
    last = max(manifest.timings.finished for manifest in manifests)
    seconds = duration(sum(manifest.timings.seconds for manifest in manifests))
    return f"{'Made' if last >= started else 'Found in the store. Made'} in {seconds}; finished at {_moment(last)}."


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _settings(task: str, settings: Mapping[str, Any]) -> dict[str, list[Parameter]]:
    """Of the step, and of others whose work it does too."""
    inside = {name: settings[name] for name in OTHER_STEPS if name in settings}
    groups = {task: parameters_of([settings], {})} | {
        name: parameters_of([values], {}) for name, values in inside.items()
    }
    return {name: rows for name, rows in groups.items() if rows}


def _phases(manifests: list[Manifest]) -> list[_Phase]:
    seconds: dict[str, float] = {}
    for manifest in manifests:
        for phase, spent in manifest.timings.phases.items():
            seconds[phase] = seconds.get(phase, 0.0) + spent
    total = max(sum(manifest.timings.seconds for manifest in manifests), sum(seconds.values()))
    seconds["rest"] = total - sum(seconds.values())
    return [_Phase(name, spent, spent / total if total else 0.0) for name, spent in seconds.items()]


def _artifacts(manifests: list[Manifest]) -> Table:
    first = manifests[0]
    files = [entry.bytes for manifest in manifests for entry in manifest.files.values()]
    rows = [
        *(["digest", manifest.digest] for manifest in manifests[:ROWS]),
        ["files", f"{len(files)}, {size(sum(files))}"],
        ["step", f"{first.task}, version {first.code_version}"],
        ["commit", first.commit],
        ["process", first.timings.process + (" (this one)" if first.timings.process == process().name else "")],
    ]
    return Table(f"Artifact{first_of(manifests)}", ["", ""], rows)


def _parents(manifest: Manifest) -> Table:
    rows = [
        [role + first_of(refs), "\n".join(str(ref) for ref in refs[:ROWS])] for role, refs in manifest.parents.items()
    ]
    return Table("Made from", ["", ""], rows)
