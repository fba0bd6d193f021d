"""Cache versions of all cached tasks, with fingerprints of their sources.

    python -m tools.cache_versions      writes tools/cache_versions.json (make versions)

The sources of a task are its declaration and the modules of tasks/ that the declaration reaches by imports, except
modules that cannot change a result (see ``_NEUTRAL``). Comments, docstrings and formatting do not count.
"""

import ast
import copy
import hashlib
import json
from functools import cache
from pathlib import Path

from tasks.process.provenance import DATA_SUFFIXES
from tasks.settings import EngineSettings
from tools import ROOT

NOTE = ROOT / "tools" / "cache_versions.json"
TASKS = [ROOT / "tasks" / "flyte" / name for name in ("tasks.py", "experiments.py")]
# Modules that store artifacts, word errors, show progress and parse settings. If a change there matters, it changes the
# settings or the digests in the cache key.
_NEUTRAL = (
    *("tasks.store.", "tasks.process.provenance.", "tasks.errors.", "tasks.flyte.", "tasks.process.logs."),
    "tasks.settings.",
)


@cache
def declared() -> dict[str, ast.FunctionDef]:
    """Return the declarations of the cached tasks by name."""
    functions = [one for path in TASKS for one in _tree(path).body if isinstance(one, ast.FunctionDef)]
    return {one.name: one for one in functions if ast.unparse(one.decorator_list[0]).startswith("step(")}


def version(task: str) -> str:
    """Return the cache version that a task declares."""
    (decorator,) = declared()[task].decorator_list
    assert isinstance(decorator, ast.Call), task
    return str(ast.literal_eval(decorator.args[0]))


def sources(task: str) -> list[Path]:
    """Return the modules whose changes can change the result of a task."""
    found: set[Path] = set()
    waiting = list(_imports(declared()[task]))
    while waiting:
        name = waiting.pop()
        place = ROOT / name.replace(".", "/")
        path = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
        if f"{name}.".startswith(_NEUTRAL) or not path.is_file() or path in found:
            continue
        found.add(path)
        waiting += _imports(_tree(path))
        if name == "tasks.rollout.engine":  # It imports engines by the names in their settings.
            waiting += [kind.path.partition(":")[0] for kind in EngineSettings.kinds().values()]
    return sorted(found)


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def _imports(tree: ast.AST) -> set[str]:
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("tasks"):
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def fingerprint(task: str) -> str:
    """Return a digest of the code of a task's declaration and sources."""
    declaration = copy.deepcopy(declared()[task])
    declaration.decorator_list = []  # The version is stored beside the digest; the other arguments are for Flyte.
    digest = hashlib.sha256(_code(declaration).encode())
    for path in sources(task):
        digest.update(_code_of(path).encode())
        for suffix in DATA_SUFFIXES:
            for data in sorted(path.parent.glob(f"*{suffix}")):
                digest.update(data.read_bytes())
    return digest.hexdigest()[:16]


@cache
def _code_of(path: Path) -> str:
    return _code(copy.deepcopy(_tree(path)))


def _code(tree: ast.AST) -> str:
    """Return a syntax tree as text, after removing all docstrings from the tree, also those of fields."""
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            body[:] = [one for one in body if not (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))]
    return ast.dump(tree).replace(", type_params=[]", "")  # Python 3.12 and later have this field.


@cache
def current() -> dict[str, dict[str, str]]:
    """Return the version and the fingerprint of every cached task."""
    return {task: {"version": version(task), "sources": fingerprint(task)} for task in sorted(declared())}


if __name__ == "__main__":
    NOTE.write_text(json.dumps(current(), indent=1) + "\n")
    print(f"wrote {NOTE.relative_to(ROOT)}")
