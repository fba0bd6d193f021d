"""Cache versions that installed packages are a part of."""

from importlib.metadata import version

_JUDGES = ("latex2sympy2-extended", "math-verify", "sympy")


def judging(own: str) -> str:
    """The cache version of a task that judges answers: its own, and those of the packages that say what is right."""
    return "-".join([own, *(f"{package}-{version(package)}" for package in _JUDGES)])
