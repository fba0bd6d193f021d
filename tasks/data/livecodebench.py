"""Reader of LiveCodeBench (hub: livecodebench/code_generation_lite): prompts with tests as gold answers."""

import base64
import binascii
import json
import pickletools
import zlib
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from tasks.errors import DataError

_OF_A_TEXT = ("PROTO", "FRAME", "MEMOIZE", "BINPUT", "LONG_BINPUT", "STOP")
_TEXTS = ("SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8")

# The texts are LiveCodeBench's (lcb_runner/prompts/code_generation.py), so that results can be compared.
_STARTER = (
    "You will use the following starter code to write the solution to the problem and enclose your code within "
    "delimiters."
)
_STANDARD_INPUT = (
    "Read the inputs from stdin solve the problem and write the answer to stdout (do not directly test on the sample "
    "inputs). Enclose your code within delimiters as follows."
)


def read_problem(row: Mapping[str, Any], place: str) -> dict[str, Any]:
    """Return prompt_id, prompt and answer of a row of the hub; the answer holds all tests, public and private.

    Raises:
        DataError: the row lacks a field, a field has another format, or the row has no tests.
    """
    try:
        tests = json.loads(row["public_test_cases"]) + private_tests(row["private_test_cases"])
        if not tests:
            raise ValueError("no tests")
        answer: dict[str, Any] = {
            name: [test[field] for test in tests] for name, field in (("inputs", "input"), ("outputs", "output"))
        }
        kinds = {test["testtype"] for test in tests}
        if kinds == {"functional"}:
            answer["fn_name"] = json.loads(row["metadata"])["func_name"]
        elif kinds != {"stdin"}:
            raise ValueError(f"tests of the kinds {sorted(kinds)}; allowed: only stdin, or only functional")
        return {"prompt_id": row["question_id"], "prompt": _prompt(row), "answer": json.dumps(answer)}
    except KeyError as error:
        raise DataError(f"{place}: no field {error.args[0]!r}, which a row of LiveCodeBench has.") from None
    except (ValueError, TypeError) as error:
        raise DataError(f"{place}: not a row of LiveCodeBench ({error}).") from None


def private_tests(field: str) -> list[dict[str, Any]]:
    """Return the private tests of a row, from JSON or from base64 of a compressed pickle of JSON text.

    Nothing is unpickled: ``pickletools`` lists the operations of a pickle without carrying them out, and only
    operations that make one text are accepted.

    Raises:
        ValueError: the field has neither format.
    """
    with suppress(json.JSONDecodeError):
        plain: list[dict[str, Any]] = json.loads(field)
        return plain
    try:
        pickled = zlib.decompress(base64.b64decode(field, validate=True))
    except (binascii.Error, zlib.error) as error:
        raise ValueError(f"private tests are neither JSON nor compressed: {error}") from None
    texts: list[str] = []
    for operation, argument, _ in pickletools.genops(pickled):
        if operation.name in _TEXTS:
            texts.append(str(argument))
        elif operation.name not in _OF_A_TEXT:
            raise ValueError(f"private tests are a pickle with {operation.name}; allowed: one text")
    (text,) = texts
    unpacked: list[dict[str, Any]] = json.loads(text)
    return unpacked


def _prompt(row: Mapping[str, Any]) -> str:
    form, code = (_STARTER, row["starter_code"]) if row["starter_code"] else (_STANDARD_INPUT, "# YOUR CODE HERE")
    return (
        f"### Question:\n{row['question_content']}\n\n### Format: {form}\n```python\n{code}\n```\n\n"
        "### Answer: (use the provided format with backticks)\n\n"
    )
