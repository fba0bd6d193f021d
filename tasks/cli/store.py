"""Tables of the commands ``lineage``, ``check`` and ``gc``."""

import json
import shlex
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.filesize import decimal
from rich.json import JSON
from rich.markup import escape
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from tasks.formats import DASH, duration, first_names, label, moment, pluralize
from tasks.report.tables import folding_table, number_table
from tasks.store import ArtifactRef, Store
from tasks.store.files import RESTORE
from tasks.store.layout import Facts
from tasks.store.lineage import Lineage, ancestry
from tasks.store.records import Manifest
from tasks.stored.check import Findings
from tasks.stored.garbage import Garbage, Item
from tasks.stored.runs import find_artifact

_COMMIT_DIGITS = 10


def lineage_json(store: Store, wanted: str) -> str:
    """Return the lineage of an artifact as JSON: manifests by folder, and missing artifacts.

    Raises:
        DataError: no artifact, or more than one, matches ``wanted``.
    """
    root = find_artifact(store, wanted)
    lineage = ancestry(store, [root])
    values = {
        "store": store.ref.uri,
        "artifact": root.folder,
        "artifacts": {name: manifest.model_dump(mode="json") for name, manifest in lineage.manifests.items()},
        "missing": {name: error.message for name, error in lineage.missing.items()},
    }
    return json.dumps(values, indent=1)


def lineage_tables(store: Store, wanted: str, settings: bool = False) -> RenderableType:
    """Return the lineage of an artifact as a tree, its packages and, with ``settings``, its settings.

    Raises:
        DataError: no artifact, or more than one, matches ``wanted``.
        ArtifactError: its manifest is missing or damaged.
    """
    root = find_artifact(store, wanted)
    lineage, manifest = ancestry(store, [root]), store.manifest(root)
    packages = ", ".join(f"{name} {version}" for name, version in manifest.packages.items())
    parts: list[RenderableType] = [_tree(lineage, root), "", f"made with  {packages}"]
    if lineage.missing:
        check = f"mu-grpo check --store {shlex.quote(store.ref.uri)}"
        parts += ["", f"{len(lineage.missing)} missing: `{escape(check)}` says how to fix it."]
    if settings:
        parts += ["", JSON.from_data(manifest.settings)]
    return Group(*parts)


def _tree(lineage: Lineage, root: ArtifactRef) -> Tree:
    seen: set[str] = set()

    def grow(tree: Tree | None, name: str, ref: ArtifactRef) -> Tree:
        label = Text.assemble((f"{name}  " if name else "", "dim"), (ref.folder, "bold"))
        manifest = lineage.manifests.get(ref.folder)
        again = ref.folder in seen
        if manifest is None:
            label.append("  missing", "red")
        else:
            label.append("  see above" if again else f"  {_line(manifest)}", "dim" if again else None)
        branch = Tree(label) if tree is None else tree.add(label)
        seen.add(ref.folder)
        for parent_name, parents in manifest.parents.items() if manifest and not again else ():
            for parent in parents:
                grow(branch, parent_name, parent)
        return branch

    return grow(None, "", root)


def _line(manifest: Manifest) -> str:
    """Return a line about an artifact: task and version, seed, highlights, commit, time and duration of its step."""
    modified = "+" if manifest.commit.endswith("+") else ""
    parts = [
        f"{manifest.task or manifest.kind} v{manifest.code_version or DASH}",
        f"seed {manifest.seed}",
        ", ".join(highlights(manifest)),
        f"{manifest.commit.rstrip('+')[:_COMMIT_DIGITS]}{modified}",
        moment(manifest.timings.finished),
        duration(manifest.timings.seconds),
    ]
    return "  ".join(part for part in parts if part)


def highlights(manifest: Manifest) -> list[str]:
    """Return what distinguishes artifacts of a kind: the path of a policy, and declared facts that are not tables."""
    facts = {name: manifest.facts[name] for name in Facts.__annotations__ if name in manifest.facts}
    scalars = {label(name): value for name, value in facts.items() if isinstance(value, str | int | float)}
    texts = [
        f"{name} {value:.3f}" if isinstance(value, float) else f"{name} {value}" for name, value in scalars.items()
    ]
    path = manifest.settings.get("path")
    return [path, *texts] if path else texts


def check_tables(findings: Findings, seconds: float) -> RenderableType:
    """Return a table of damaged or missing files with the fix, and a line about what was checked in ``seconds``."""
    parts: list[RenderableType] = []
    if findings.faults:
        table = folding_table("artifact", "file", "expected", "found", "descendants")
        for fault in findings.faults:
            descendants = first_names(findings.descendants[fault.artifact], 3) or DASH
            table.add_row(*map(escape, (fault.artifact, fault.file, fault.expected, fault.found, descendants)))
        delete = "delete damaged artifacts, because on S3 a step counts as done if its files have the expected sizes."
        parts += [table, f"to fix it: {delete} {RESTORE}", ""]
    numbers = (
        f"{pluralize(findings.artifacts, 'artifact')}, {pluralize(findings.files, 'file')}, {decimal(findings.bytes)}"
    )
    damaged = len({fault.artifact for fault in findings.faults})
    result = f"{pluralize(damaged, 'artifact')} damaged or missing" if damaged else "whole"
    return Group(*parts, f"{numbers} in {duration(seconds)}: {result}")


def garbage_tables(garbage: Garbage, hours: float, deleted: bool = False, names: bool = False) -> RenderableType:
    """Return a table of items to delete, and a line about what is kept, such as items younger than ``hours``."""
    parts: list[RenderableType] = [f"{item.name}  {decimal(item.bytes)}" for item in garbage.items if names]
    parts.append(_items(garbage.items, "deleted" if deleted else "to delete") if garbage.items else "nothing to delete")
    reason = f"are younger than {hours:g} h, or of an unfinished run with artifacts that are"
    if garbage.work.keys:
        reason = f"may be read by running steps (leases {first_names(garbage.work.keys, 3)})"
    spared = f", {garbage.spared} of them because they {reason}" if garbage.spared else ""
    parts.append(f"kept: {pluralize(garbage.runs, 'finished run')}; {pluralize(garbage.kept, 'artifact')}{spared}")
    return Group(*parts)


def _items(items: Sequence[Item], title: str) -> Table:
    table = number_table(title, ["kind"], ["number", "bytes"])
    for kind in dict.fromkeys(item.kind for item in items):
        of_kind = [item.bytes for item in items if item.kind == kind]
        table.add_row(kind, str(len(of_kind)), decimal(sum(of_kind)))
    table.add_section()
    table.add_row("all", str(len(items)), decimal(sum(item.bytes for item in items)))
    return table
