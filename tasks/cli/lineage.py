"""The command lineage: a tree of what an artifact was made from, and the code and packages that made it."""

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
from tasks.artifacts.lineage import ancestry
from tasks.artifacts.records import Manifest
from tasks.report.formats import duration, moment, percent
from tasks.stored.find import find_artifact

_COMMIT_DIGITS = 10
_NONE = "-"


class ShownLineage:
    """An artifact and all that it descends from, to be shown.

    Args:
        store: the store of the artifacts.
        wanted: the artifact as ``kind/digest``, or ``latest`` for the last policy of the latest run.

    Raises:
        DataError: there is no such artifact, or more than one.
        ArtifactError: the artifact's own manifest cannot be read.
    """

    def __init__(self, store: Store, wanted: str) -> None:
        self._store = store.ref.uri
        self.root = find_artifact(store, wanted)
        found = ancestry(store, [self.root])
        self.manifests, self.missing = found.manifests, found.missing

    def shown(self, settings: bool = False) -> RenderableType:
        """Return the tree, packages and commits, and with ``settings`` the settings of the artifact itself."""
        parts: list[RenderableType] = [self._tree(), "", *_code(self.manifests)]
        if self.missing:
            check = f"mu-grpo check --store {shlex.quote(self._store)}"
            parts += ["", f"{len(self.missing)} missing: `{check}` says how to fix it."]
        if settings:
            parts += ["", JSON.from_data(self.manifests[self.root.folder].settings)]
        return Group(*parts)

    def as_json(self) -> str:
        """Return everything as JSON: manifests as they are stored, by folder, and what is missing."""
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
    """Return a line on an artifact: step and version, seed, settings that matter, commit, when it was made, seconds."""
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
    """Return the few settings and facts that tell artifacts of a kind apart; those that are not noted are left out."""
    settings = manifest.settings
    modifier = settings.get("modifier", "none")
    preset = f"{settings.get('preset')}{'' if modifier == 'none' else f' + {modifier}'}"
    facts, accuracy = manifest.known_facts, manifest.known_facts.get("accuracy")
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
            per_prompt = settings.get("responses_per_prompt")
            shown = [(facts.get("responses"), "{} responses"), (per_prompt, "{} per prompt")]
        case "verdicts":
            shown = [(facts.get("responses"), "{} responses"), (facts.get("reward"), "reward {:.3f}")]
        case "prompts":
            shown = [(facts.get("prompts"), "{} prompts"), (facts.get("benchmark"), "{}")]
            shown += [("training set" if "overlapping" in facts else None, "{}")]
        case "evaluation":
            of = (
                facts.get("accuracy"),
                f"avg@{settings.get('samples_per_problem')} {percent(accuracy)}",
            )
            shown = [(facts.get("benchmark"), "{}"), of]
        case "average":
            shown = [(len(facts.get("benchmarks") or {}) or None, "{} benchmarks")]
            shown += [(accuracy, f"mean {percent(accuracy)}")]
        case "report":
            shown = [(facts.get("algorithm"), "{}")]
        case "laboratory" | "reproduction":
            shown = [(facts.get("part"), "part {}"), (facts.get("runs"), "{} runs")]
    return [text.format(value) for value, text in shown if value is not None]


def _commit(manifest: Manifest) -> str:
    changed = "+" if manifest.commit.endswith("+") else ""
    return f"{manifest.commit.rstrip('+')[:_COMMIT_DIGITS]}{changed}"


def _code(manifests: Mapping[str, Manifest]) -> list[RenderableType]:
    """Return commits and package versions: one line on what all artifacts share, a table of what differs."""
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
