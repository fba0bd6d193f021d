"""Tables of what is in a store: lineage of an artifact, damage that a check found, and garbage."""

import json
import shlex
from collections.abc import Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.json import JSON
from rich.markup import escape
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from tasks.formats import duration, first_names, label, moment, pluralize, size
from tasks.report.tables import folding_table
from tasks.store import ArtifactRef, Store
from tasks.store.files import RESTORE
from tasks.store.layout import Facts
from tasks.store.lineage import Lineage, ancestry
from tasks.store.records import Manifest
from tasks.stored.check import Findings
from tasks.stored.garbage import Garbage, Item
from tasks.stored.runs import find_artifact

_COMMIT_DIGITS = 10
_NONE = "-"


def lineage_json(store: Store, wanted: str) -> str:
    """Return an artifact and all that it descends from as JSON: manifests by folder, and what is missing.

    Raises:
        DataError: there is no such artifact, or more than one.
    """
    root = find_artifact(store, wanted)
    found = ancestry(store, [root])
    plain = {
        "store": store.ref.uri,
        "artifact": root.folder,
        "artifacts": {name: manifest.model_dump(mode="json") for name, manifest in found.manifests.items()},
        "missing": found.missing,
    }
    return json.dumps(plain, indent=1)


def lineage_tables(store: Store, wanted: str, settings: bool = False) -> RenderableType:
    """Return a tree of what an artifact was made from, its packages, and with ``settings`` its settings.

    Raises:
        DataError: there is no such artifact, or more than one.
    """
    root = find_artifact(store, wanted)
    found = ancestry(store, [root])
    packages = ", ".join(f"{name} {version}" for name, version in found.manifests[root.folder].packages.items())
    parts: list[RenderableType] = [_tree(found, root), "", f"made with  {packages}"]
    if found.missing:
        check = f"mu-grpo check --store {shlex.quote(store.ref.uri)}"
        parts += ["", f"{len(found.missing)} missing: `{check}` says how to fix it."]
    if settings:
        parts += ["", JSON.from_data(found.manifests[root.folder].settings)]
    return Group(*parts)


def _tree(lineage: Lineage, root: ArtifactRef) -> Tree:
    seen: set[str] = set()

    def grow(tree: Tree | None, role: str, ref: ArtifactRef) -> Tree:
        label = Text.assemble((f"{role}  " if role else "", "dim"), (ref.folder, "bold"))
        manifest = lineage.manifests.get(ref.folder)
        again = ref.folder in seen
        if manifest is None:
            label.append("  missing", "red")
        else:
            label.append("  see above" if again else f"  {_line(manifest)}", "dim" if again else None)
        branch = Tree(label) if tree is None else tree.add(label)
        seen.add(ref.folder)
        for name, parents in manifest.parents.items() if manifest and not again else ():
            for parent in parents:
                grow(branch, name, parent)
        return branch

    return grow(None, "", root)


def _line(manifest: Manifest) -> str:
    """Return a line on an artifact: step and version, seed, settings that matter, commit, when it was made, seconds."""
    changed = "+" if manifest.commit.endswith("+") else ""
    parts = [
        f"{manifest.task or manifest.kind} v{manifest.code_version or _NONE}",
        f"seed {manifest.seed}",
        ", ".join(highlights(manifest)),
        f"{manifest.commit.rstrip('+')[:_COMMIT_DIGITS]}{changed}",
        moment(manifest.timings.finished),
        duration(manifest.timings.seconds),
    ]
    return "  ".join(part for part in parts if part)


def highlights(manifest: Manifest) -> list[str]:
    """Return what tells artifacts of a kind apart: where a policy is from, and its declared facts but tables."""
    facts = {name: manifest.facts[name] for name in Facts.__annotations__ if name in manifest.facts}
    shown = {label(name): value for name, value in facts.items() if isinstance(value, str | int | float)}
    told = [f"{name} {value:.3f}" if isinstance(value, float) else f"{name} {value}" for name, value in shown.items()]
    return [*([manifest.settings["path"]] if manifest.settings.get("path") else []), *told]


def check_tables(findings: Findings, seconds: float) -> RenderableType:
    """Return a table of what is wrong in a store, how to fix it, and what was checked in some seconds."""
    parts: list[RenderableType] = []
    if findings.faults:
        table = folding_table("artifact", "file", "expected", "found", "descend from it")
        for fault in findings.faults:
            descend = first_names(findings.descendants[fault.artifact], 3) or _NONE
            table.add_row(*map(escape, (fault.artifact, fault.file, fault.expected, fault.found, descend)))
        delete = "Delete what is damaged: a step whose files have their sizes may count as done."
        parts += [table, f"to fix it: {delete} {RESTORE}", ""]
    numbers = (
        f"{pluralize(findings.artifacts, 'artifact')}, {pluralize(findings.files, 'file')}, {size(findings.bytes)}"
    )
    damaged = len({fault.artifact for fault in findings.faults})
    result = f"{pluralize(damaged, 'artifact')} damaged or missing" if damaged else "whole"
    return Group(*parts, f"{numbers} in {duration(seconds)}: {result}")


def garbage_tables(garbage: Garbage, hours: float, deleted: bool = False, names: bool = False) -> RenderableType:
    """Return a table of what goes, and what stays and why; artifacts younger than some hours were spared."""
    parts: list[RenderableType] = [f"{item.name}  {size(item.bytes)}" for item in garbage.items if names]
    parts.append(_items(garbage.items, "deleted" if deleted else "to delete") if garbage.items else "nothing to delete")
    why = f"are younger than {hours:g} h, or something that is descends from them"
    if garbage.work.keys:
        why = f"may be read by steps that are at work (leases {first_names(garbage.work.keys, 3)})"
    spared = f", {garbage.spared} of them because they {why}" if garbage.spared else ""
    parts.append(f"kept: {pluralize(garbage.runs, 'finished run')}; {pluralize(garbage.kept, 'artifact')}{spared}")
    return Group(*parts)


def _items(items: Sequence[Item], title: str) -> Table:
    table = Table(title=title, box=box.SIMPLE_HEAD, title_justify="left", show_footer=True)
    table.add_column("kind", "total", no_wrap=True)
    table.add_column("number", str(len(items)), justify="right", no_wrap=True)
    table.add_column("bytes", size(sum(item.bytes for item in items)), justify="right", no_wrap=True)
    for kind in dict.fromkeys(item.kind for item in items):
        of_kind = [item.bytes for item in items if item.kind == kind]
        table.add_row(kind, str(len(of_kind)), size(sum(of_kind)))
    return table
