"""Programs and responses of tests."""

import json

from tasks.settings import CodeSettings, VerifySettings


def fenced(program: str) -> str:
    return f"```python\n{program}\n```"


def texts(*pairs: tuple[str, str]) -> str:
    """A reference answer of inputs and outputs."""
    return json.dumps({"inputs": [pair[0] for pair in pairs], "outputs": [pair[1] for pair in pairs]})


def calls(name: str, *pairs: tuple[list, object]) -> str:
    """A reference answer of arguments and results of a function."""
    return json.dumps({"fn_name": name, "inputs": [pair[0] for pair in pairs], "outputs": [pair[1] for pair in pairs]})


def asserts(*lines: str, setup: str = "") -> str:
    return json.dumps({"asserts": lines, "setup": setup})


def code_settings(workers: int = 1, **limits) -> VerifySettings:
    return VerifySettings(kind="code", workers=workers, code=CodeSettings(**limits))
