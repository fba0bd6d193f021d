"""Finds a function of the user's own, such as a reward function, without running its module."""

import ast
import hashlib
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.util import decode_source
from pathlib import Path
from symtable import symtable

_NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
_OURS = ("tasks", "workflows")
"""Packages whose changes are those of cache versions."""
_INSTALLED = ("site-packages", "dist-packages")
"""Folders of installed packages: other packages in them are no part of one."""


@dataclass(frozen=True)
class FunctionSource:
    """Origin of a function of the user's own."""

    root: Path
    """The folder that Python imports its module from."""
    digest: str
    """SHA-256 of the module's file and of the files below ``root`` that it imports, directly or not."""


def find_function(name: str) -> FunctionSource:
    """Finds ``module:name`` in the current folder, then in the folders of ``sys.path``.

    Raises:
        ValueError: there is no such module or function, or it does not take three arguments.
    """
    if not _NAME.fullmatch(name):
        raise ValueError("allowed: a module and a function in it, as in my_rewards:score")
    module, _, function = name.partition(":")
    here = Path.cwd()
    files = list(_files(module, [str(here), *sys.path]))
    if not files or files[-1][0] != module:
        raise ValueError(
            f"there is no module {module}, neither in the current folder {here} nor among the installed ones. "
            f"Name a file {module.replace('.', '/')}.py there, or install its package; in a pod the image must have it"
        )
    path = files[-1][1]
    root = path.parents[module.count(".") + (path.name == "__init__.py")]
    _check(path, function)
    return FunctionSource(root, _digest(module, root))


def _check(path: Path, function: str) -> None:
    """Raise ValueError unless a module's text defines, imports or assigns a function that takes three arguments.

    What it imports or assigns is looked at when a worker has loaded it.
    """
    try:
        text = decode_source(path.read_bytes())
        tree, names = ast.parse(text), symtable(text, str(path), "exec")
    except (SyntaxError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not Python: {error}") from None
    bound = {one.get_name() for one in names.get_symbols() if one.is_assigned() or one.is_imported()}
    defined = {one.name: one for one in tree.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)}
    stars = any(isinstance(one, ast.ImportFrom) and one.names[0].name == "*" for one in ast.walk(tree))
    if function not in bound and not stars:
        raise ValueError(f"{path} has no function {function}; it has {', '.join(defined) or 'no function'}")
    stored = {one.id for one in ast.walk(tree) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store)}
    found = None if function in stored else defined.get(function)
    if isinstance(found, ast.AsyncFunctionDef):
        raise ValueError(f"{function} in {path} is a coroutine; allowed: a plain function")
    if found is not None and not _takes_three(found.args):
        raise ValueError(
            f"{function}({ast.unparse(found.args)}) in {path}, line {found.lineno}; allowed: a function that can be "
            "called with three arguments, prompt, response, answer"
        )


def _takes_three(arguments: ast.arguments) -> bool:
    count = len(arguments.posonlyargs) + len(arguments.args)
    needs_keyword = any(default is None for default in arguments.kw_defaults)
    return count - len(arguments.defaults) <= 3 and (count >= 3 or arguments.vararg is not None) and not needs_keyword


def _digest(module: str, root: Path) -> str:
    own = module.partition(".")[0]
    seen: dict[str, str] = {}
    waiting = [module]
    while waiting:
        for name, path in _files(waiting.pop(), [str(root)]):
            if name in seen:
                continue
            data = path.read_bytes()
            seen[name] = hashlib.sha256(data).hexdigest()
            waiting += [
                one
                for one in _imported(data, name, path)
                if (top := one.partition(".")[0]) == own or (top not in _OURS and root.name not in _INSTALLED)
            ]
    return hashlib.sha256(repr(sorted(seen.items())).encode()).hexdigest()


def _imported(data: bytes, name: str, path: Path) -> Iterator[str]:
    """Full names of the modules that a module may import; of ``from a import b`` both ``a`` and ``a.b``."""
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(data)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")
            base = ".".join(parents[: len(parents) + 1 - node.level]) if node.level else ""
            start = ".".join(filter(None, [base, node.module]))
            yield from (".".join(filter(None, [start, *end])) for end in [(), *((one.name,) for one in node.names)])


def _files(module: str, folders: Iterable[str]) -> Iterator[tuple[str, Path]]:
    """Names and files of a module and the packages that it is in, from the outermost one, as far as they are found."""
    parts = module.split(".")
    places = [Path(folder) for folder in folders]
    for depth, part in enumerate(parts, 1):
        paths = (path for place in places for path in (place / part / "__init__.py", place / f"{part}.py"))
        found = next((path for path in paths if path.is_file()), None)
        if found is None:  # A package without __init__.py may be in several folders.
            places = [place / part for place in places if (place / part).is_dir()]
            continue
        yield ".".join(parts[:depth]), found
        places = [found.parent] if found.name == "__init__.py" else []
