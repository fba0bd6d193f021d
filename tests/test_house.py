"""Rules of the project: allowed imports, the map of folders in docs/design.md, and cache versions."""

import json
import re
from importlib import import_module
from pathlib import Path

import pytest

from tests.prepared import run_python
from tools.cache_versions import NOTE, ROOT, current, declared, sources

HEAVY = {"torch", "flytekit", "kubernetes"}


def rooms_that_import(*names: str) -> set[Path]:
    """Return the folders with a module that imports one of the packages."""
    line = re.compile(rf"^ *(?:from|import) (?:{'|'.join(names)})\b", re.MULTILINE)
    modules = [*ROOT.glob("tasks/**/*.py"), *ROOT.glob("workflows/**/*.py")]
    return {path.parent for path in modules if line.search(path.read_text())}


def test_flyte_and_kubernetes_are_known_in_their_rooms_alone() -> None:
    flyte = {ROOT / "tasks/flyte", ROOT / "workflows"}
    assert rooms_that_import("flytekit", "flytekitplugins", "flyteidl") == flyte
    assert rooms_that_import("kubernetes") <= {ROOT / "tasks/cluster"}


@pytest.mark.parametrize(
    ("modules", "heavy"),
    [
        ("tasks.settings, tasks.cli.main, tasks.cli.experiments", {"transformers"}),
        ("tasks.cli.main, tasks.cli.plan, tasks.cli.algorithms", {"numpy", "pyarrow"}),
    ],
)
def test_settings_and_the_command_load_nothing_heavy(modules: str, heavy: set[str]) -> None:
    done = run_python(f"import sys, {modules}; print({HEAVY | heavy} & set(sys.modules))")
    assert done.stdout.strip() == "set()"


def test_the_map_of_the_house_is_true() -> None:
    page = (ROOT / "docs/design.md").read_text()
    block = re.search(r"## The map\n.*?```text\n(.*?)```", page, re.DOTALL)[1]
    named, stack = set(), [""]
    for line in block.splitlines():
        depth, entry = (len(line) - len(line.lstrip())) // 2, line.split()[0]
        stack = [*stack[: depth + 1], entry]
        path = ROOT / "".join(stack)
        assert path.exists(), f"docs/design.md names {path.relative_to(ROOT)}"
        assert path.is_dir() == entry.endswith("/")
        named.add(path)
    for folder in [*ROOT.glob("tasks/*/"), *ROOT.glob("workflows/*.py")]:
        if folder.name not in ("__pycache__", "__init__.py"):
            assert folder in named, f"docs/design.md does not name {folder.relative_to(ROOT)}"


@pytest.mark.parametrize("task", sorted(declared()))
def test_a_changed_task_has_a_new_cache_version(task: str) -> None:
    noted, now = json.loads(NOTE.read_text()).get(task), current()[task]
    loaded = [path.name for path in sources(task) if path.name.endswith(("_engine.py", "_backend.py"))]
    assert len(loaded) in (0, 2, 4)  # all engines, all backends, or both
    assert noted == now, (
        f"the sources of {task} changed. If what the task computes can differ, raise its version "
        "where tasks/flyte/ declares it; then run `make versions` and commit tools/cache_versions.json."
    )


def test_programs_that_are_run_by_hand_can_be_imported() -> None:
    """Benchmarks and generators of pages can be imported; no other test would notice a renamed function."""
    for path in {*ROOT.glob("tools/benchmarks/**/*.py"), ROOT / "tools/faults/__main__.py"}:
        import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
