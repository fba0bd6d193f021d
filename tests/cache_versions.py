"""What the results of every cached task depend on, and a note of it.

    python -m tests.cache_versions      writes tests/cache_versions.json (make versions)

A task's sources are the modules of tasks/ that its door reaches by imports, without those that cannot change a result
(see ``_NEUTRAL``), and without comments, docstrings and formatting.
"""

import ast
import hashlib
import json
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
NOTE = ROOT / "tests" / "cache_versions.json"
# How artifacts are stored, errors are worded, progress is shown and settings are parsed: a change there that matters
# changes the settings or the digests that enter a cache key.
_NEUTRAL = ("tasks.artifacts", "tasks.errors", "tasks.platform", "tasks.progress", "tasks.settings")


def doors() -> list[Path]:
    """Every task.py with a cached task."""
    return [path for path in sorted(ROOT.glob("tasks/*/task.py")) if "VERSION" in path.read_text()]


def version(door: Path) -> str:
    """The cache version that a door declares."""
    for node in ast.parse(door.read_text()).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "VERSION":
            return str(ast.literal_eval(node.value))
    raise AssertionError(f"{door}: no VERSION")


def sources(door: Path) -> list[Path]:
    """The modules whose change can change what a door's tasks compute."""
    found, waiting = {door}, [door]
    while waiting:
        for name in _imports(waiting.pop()):
            path = ROOT / (name.replace(".", "/") + ".py")
            if name.startswith(_NEUTRAL) or not path.is_file() or path in found:
                continue
            found.add(path)
            waiting.append(path)
    return sorted(found)


@cache
def _imports(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("tasks"):
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def fingerprint(door: Path) -> str:
    """A digest of what a door's sources do."""
    digest = hashlib.sha256()
    for path in sources(door):
        digest.update(_code(path).encode())
        for pattern in ("*.j2", "*.css", "*.json"):
            for data in sorted(path.parent.glob(pattern)):
                digest.update(data.read_bytes())
    return digest.hexdigest()[:16]


@cache
def _code(path: Path) -> str:
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            # Docstrings, also those under fields, and the version itself.
            node.body = [  # type: ignore[attr-defined]
                one
                for one in body
                if not (isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant))
                and not (isinstance(one, ast.Assign) and ast.unparse(one.targets[0]) == "VERSION")
            ]
    return ast.dump(tree)


@cache
def current() -> dict[str, dict[str, str]]:
    """Version and fingerprint of every door, by step."""
    return {door.parent.name: {"version": version(door), "sources": fingerprint(door)} for door in doors()}


if __name__ == "__main__":
    NOTE.write_text(json.dumps(current(), indent=1) + "\n")
    print(f"wrote {NOTE.relative_to(ROOT)}")
