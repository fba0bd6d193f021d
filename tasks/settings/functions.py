"""Find a user's function, such as a reward function, without running its module."""

import ast
import hashlib
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import decode_source, find_spec, resolve_name
from pathlib import Path
from symtable import SymbolTable, symtable

_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
_PROJECT_PACKAGES = ("tasks", "workflows")
"""Packages of this project, whose changes the cache versions follow."""
_INSTALLED = ("site-packages", "dist-packages")
"""Names of folders with installed packages; a digest includes only the function's own package of such a folder."""


@dataclass(frozen=True)
class FunctionSource:
    """Source of a user's function."""

    root: Path
    """The folder that Python imports the function's module from."""
    digest: str
    """SHA-256 of the module's file and of the files below ``root`` that it imports, also indirectly."""


def find_function(name: str) -> FunctionSource:
    """Find the function ``module:name`` in the current folder, in the folders of ``sys.path``, or by an import hook.

    Raises:
        ValueError: the module or the function does not exist, a file is not Python, or the function does not take three
            arguments.
    """
    if not _NAME.fullmatch(name) or ".py:" in name:
        raise ValueError("allowed: a module, without .py, and a function in it, as in my_rewards:score")
    module, _, function = name.partition(":")
    here = Path.cwd()
    files = list(_files(module, [str(here), *sys.path, *_hooked(module.partition(".")[0])]))
    if not files or files[-1][0] != module:
        raise ValueError(
            f"there is no module {module}, neither in the current folder {here} nor among the installed ones. "
            f"Add {module.replace('.', '/')}.py to this folder, or install its package; in a pod, the image needs it"
        )
    path = files[-1][1]
    root = path.parents[module.count(".") + (path.name == "__init__.py")]
    _check(path, function)
    return FunctionSource(root, _digest(module, root))


def _hooked(name: str) -> list[str]:
    """Return the folders of a top-level module or package that an import hook finds, as after ``pip install -e``."""
    spec = find_spec(name) if name not in sys.modules else sys.modules[name].__spec__
    return [str(Path(place).parent) for place in spec.submodule_search_locations or [spec.origin or ""]] if spec else []


def _check(path: Path, function: str) -> None:
    """Raise ValueError unless a module defines a function that takes three arguments, or imports or assigns the name.

    An imported or assigned object is checked after a worker has loaded it.
    """
    tree, names = _read(path)
    bound = {symbol.get_name() for symbol in names.get_symbols() if symbol.is_assigned() or symbol.is_imported()}
    defined = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    has_star = any(isinstance(node, ast.ImportFrom) and node.names[0].name == "*" for node in ast.walk(tree))
    if function not in bound and not has_star:
        raise ValueError(f"{path} has no function {function}; it has {', '.join(defined) or 'no function'}")
    assigned = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    definition = None if function in assigned else defined.get(function)
    if isinstance(definition, ast.AsyncFunctionDef):
        raise ValueError(f"{function} in {path} is a coroutine; allowed: a plain function")
    if definition is not None and not _takes_three(definition.args):
        raise ValueError(
            f"{function}({ast.unparse(definition.args)}) in {path}, line {definition.lineno}; allowed: a function that "
            "can be called with three arguments, prompt, response, answer"
        )


def _read(path: Path) -> tuple[ast.Module, SymbolTable]:
    """Return the syntax tree and the names of a module; raise ValueError if its file is not Python."""
    try:
        text = decode_source(path.read_bytes())
        return ast.parse(text), symtable(text, str(path), "exec")
    except (SyntaxError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not Python: {error}") from None


def _takes_three(arguments: ast.arguments) -> bool:
    count = len(arguments.posonlyargs) + len(arguments.args)
    needs_keyword = any(default is None for default in arguments.kw_defaults)
    return count - len(arguments.defaults) <= 3 and (count >= 3 or arguments.vararg is not None) and not needs_keyword


def _digest(module: str, root: Path) -> str:
    package = module.partition(".")[0]
    digests: dict[str, str] = {}
    waiting = [module]
    while waiting:
        wanted = waiting.pop()
        if wanted.endswith(".*"):
            waiting += _modules_in(wanted.removesuffix(".*"), root)
            continue
        for name, path in _files(wanted, [str(root)]):
            if name in digests:
                continue
            digests[name] = hashlib.sha256(path.read_bytes()).hexdigest()
            waiting += [
                other
                for other in _imported(name, path)
                if (top := other.partition(".")[0]) == package
                or (top not in _PROJECT_PACKAGES and root.name not in _INSTALLED)
            ]
    return hashlib.sha256(repr(sorted(digests.items())).encode()).hexdigest()


def _modules_in(package: str, root: Path) -> list[str]:
    """Return the modules and packages in a package, any of which ``from package import *`` may import."""
    inside = root.joinpath(*package.split("."))
    names = [path.stem for path in inside.glob("*.py")] + [path.parent.name for path in inside.glob("*/__init__.py")]
    return [f"{package}.{name}" for name in names if name != "__init__"]


def _imported(name: str, path: Path) -> Iterator[str]:
    """Yield the full names of the modules that a module may import: both ``a`` and ``a.b`` for ``from a import b``."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(_read(path)[0]):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            with suppress(ImportError):  # Python cannot import from above the top-level package either.
                start = resolve_name("." * node.level + (node.module or ""), package)
                yield from (start, *(f"{start}.{alias.name}" for alias in node.names))


def _files(module: str, folders: Iterable[str]) -> Iterator[tuple[str, Path]]:
    """Yield name and file of a module's packages, the outermost first, and of the module, as far as they exist."""
    parts = module.split(".")
    parents = [Path(folder) for folder in folders]
    for depth, part in enumerate(parts, 1):
        paths = (path for parent in parents for path in (parent / part / "__init__.py", parent / f"{part}.py"))
        file = next((path for path in paths if path.is_file()), None)
        if file is None:  # A package without __init__.py may be in several folders.
            parents = [parent / part for parent in parents if (parent / part).is_dir()]
            continue
        yield ".".join(parts[:depth]), file
        parents = [file.parent] if file.name == "__init__.py" else []
