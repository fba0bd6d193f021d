"""Where an artifact comes from: a tree over its parents, and the code and packages that made them."""

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.json import JSON
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from tasks.artifacts import ArtifactRef, Store
from tasks.artifacts.records import Manifest
from tasks.errors import ArtifactError
from tasks.report.formats import duration, moment, percent
from tasks.stored.find import find_artifact

_COMMIT_DIGITS = 10
_NONE = "-"


class Lineage:
    """An artifact and all that it descends from; what is missing does not hide the rest.

    Args:
        store: of the artifacts.
        wanted: the artifact as ``kind/digest``, or ``latest`` for the last policy of the latest run.

    Raises:
        DataError: there is no such artifact, or more than one.
        ArtifactError: the artifact's own manifest cannot be read.
    """

    def __init__(self, store: Store, wanted: str) -> None:
        self._store = store.ref.uri
        self.root = find_artifact(store, wanted)
        self.manifests: dict[str, Manifest] = {}
        """By folder, as are the others."""
        self.missing: dict[str, str] = {}
        """Why there is no manifest."""
        waiting = [self.root]
        while waiting:
            ref = waiting.pop(0)
            if ref.folder in self.manifests or ref.folder in self.missing:
                continue
            try:
                manifest = store.manifest(ref)
            except ArtifactError as error:
                self.missing[ref.folder] = error.message
                continue
            self.manifests[ref.folder] = manifest
            waiting.extend(parent for parents in manifest.parents.values() for parent in parents)

    def shown(self, settings: bool = False) -> RenderableType:
        """The tree, packages and commits, and with ``settings`` those of the artifact itself."""
        parts: list[RenderableType] = [self._tree(), "", *_code(self.manifests)]
        if self.missing:
            check = f"mu-grpo check --store {shlex.quote(self._store)}"
            parts += ["", f"{len(self.missing)} missing: `{check}` says how to mend it."]
        if settings:
            parts += ["", JSON.from_data(self.manifests[self.root.folder].settings)]
        return Group(*parts)

    def as_json(self) -> str:
        """Everything: manifests as they are stored, by folder, and what is missing."""
        plain = {
            "store": self._store,
            "artifact": self.root.folder,
            "artifacts": {name: manifest.model_dump(mode="json") for name, manifest in self.manifests.items()},
            "missing": self.missing,
        }
        return json.dumps(plain, indent=1)

    def _tree(self) -> Tree:
        seen: set[str] = set()

        def grow(tree: Tree | None, role: str, ref: ArtifactRef) -> Tree:
            label = Text.assemble((f"{role}  " if role else "", "dim"), (ref.folder, "bold"))
            manifest = self.manifests.get(ref.folder)
            if ref.folder in seen:
                label.append("  see above", "dim")
            elif manifest is None:
                label.append("  missing", "red")
            else:
                label.append(f"  {_line(manifest)}")
            branch = Tree(label) if tree is None else tree.add(label)
            if ref.folder not in seen and manifest is not None:
                seen.add(ref.folder)
                for name, parents in manifest.parents.items():
                    for parent in parents:
                        grow(branch, name, parent)
            return branch

        return grow(None, "", self.root)


def _line(manifest: Manifest) -> str:
    """Step and cache version, seed, settings that matter, commit, when it was made and how long that took."""
    parts = [
        f"{manifest.task or manifest.kind} v{manifest.code_version or _NONE}",
        f"seed {manifest.seed}",
        ", ".join(highlights(manifest)),
        _commit(manifest),
        moment(manifest.timings.finished),
        duration(manifest.timings.seconds),
    ]
    return "  ".join(part for part in parts if part)


def highlights(manifest: Manifest) -> list[str]:
    """The few settings and results that tell artifacts of a kind apart; those that are not noted are left out."""
    settings, facts = manifest.settings, manifest.facts
    modifier = settings.get("modifier", "none")
    preset = f"{settings.get('preset')}{'' if modifier == 'none' else f' + {modifier}'}"
    shown: list[tuple[Any, str]] = []
    match manifest.kind:
        case "policy" | "study" if settings.get("preset"):
            shown = [
                (preset, "{}"),
                (facts.get("updates_per_rollout"), "mu {}"),
                (settings.get("responses_per_update"), "{} responses per update"),
                (facts.get("stage"), "stage {}"),
                (facts.get("updates"), "{} updates"),
            ]
        case "policy":
            shown = [(settings.get("path") or ("tiny" if settings.get("tiny") else None), "{}")]
        case "rollouts":
            shown = [(facts.get("responses"), "{} responses"), (settings.get("responses_per_prompt"), "{} per prompt")]
        case "verdicts":
            reward = facts.get("reward")
            shown = [(facts.get("responses"), "{} responses"), (reward, f"reward {reward or 0:.3f}")]
        case "prompts":
            shown = [(facts.get("prompts"), "{} prompts"), (facts.get("benchmark"), "{}")]
            shown += [("training set" if "overlapping" in facts else None, "{}")]
        case "evaluation":
            accuracy, k = facts.get("accuracy"), settings.get("samples_per_problem")
            shown = [(facts.get("benchmark"), "{}"), (accuracy, f"avg@{k} {percent(accuracy)}")]
        case "average":
            accuracy, benchmarks = facts.get("accuracy"), facts.get("benchmarks") or {}
            shown = [(len(benchmarks) or None, "{} benchmarks"), (accuracy, f"mean {percent(accuracy)}")]
        case "report":
            shown = [(facts.get("algorithm"), "{}")]
        case "laboratory" | "reproduction":
            shown = [(facts.get("part"), "part {}"), (facts.get("runs"), "{} runs")]
    return [text.format(value) for value, text in shown if value is not None]


def _commit(manifest: Manifest) -> str:
    changed = "+" if manifest.commit.endswith("+") else ""
    return f"{manifest.commit.rstrip('+')[:_COMMIT_DIGITS]}{changed}"


def _code(manifests: Mapping[str, Manifest]) -> list[RenderableType]:
    """Commits and package versions: in a line what all artifacts share, per artifact what differs."""
    made = {name: {"commit": _commit(one) or _NONE, **one.packages} for name, one in manifests.items()}
    names = list(dict.fromkeys(key for versions in made.values() for key in versions))
    values = {key: {versions.get(key, _NONE) for versions in made.values()} for key in names}
    shared = [f"{key} {min(found)}" for key, found in values.items() if len(found) == 1]
    parts: list[RenderableType] = [f"made by  {', '.join(shared)}"] if shared else []
    differing = [key for key, found in values.items() if len(found) > 1]
    return [*parts, "", _versions(made, differing)] if differing else parts


def _versions(made: Mapping[str, Mapping[str, str]], names: Sequence[str]) -> Table:
    table = Table(box=box.SIMPLE_HEAD)
    for heading in ("artifact", *names):
        table.add_column(heading, no_wrap=True)
    for artifact, versions in made.items():
        table.add_row(artifact, *(versions.get(name, _NONE) for name in names))
    return table
