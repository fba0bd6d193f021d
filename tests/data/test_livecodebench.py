import base64
import json
import os
import pickle
import zlib

import pytest

from tasks.data.files import read_rows
from tasks.data.livecodebench import private_tests, read_problem
from tasks.errors import DataError
from tasks.settings import SourceSettings
from tests.data.hub import parquet


def compressed(value: object, protocol: int = pickle.DEFAULT_PROTOCOL) -> str:
    """As the hub has private tests, whose value is a text of JSON."""
    return base64.b64encode(zlib.compress(pickle.dumps(value, protocol))).decode()


def one(given: str, expected: str, kind: str = "stdin") -> dict[str, str]:
    return {"input": given, "output": expected, "testtype": kind}


def row(**changes: object) -> dict[str, object]:
    return {
        "question_id": "1873_A",
        "question_content": "Add two numbers.",
        "starter_code": "",
        "public_test_cases": json.dumps([one("2 3\n", "5\n")]),
        "private_test_cases": compressed(json.dumps([one("20 30\n", "50\n")])),
        "metadata": "{}",
        **changes,
    }


FUNCTION = row(
    starter_code="class Solution:\n    def add(self, numbers: List[int], more: int) -> int:\n        ",
    public_test_cases=json.dumps([one("[2, 3]\n4", "9", "functional")]),
    private_test_cases=compressed(json.dumps([one("[]\n4", "4", "functional")])),
    metadata='{"func_name": "add"}',
)


def test_rows_with_standard_input_and_with_a_function(tmp_path):
    (tmp_path / "a.parquet").write_bytes(parquet([row(), {**FUNCTION, "question_id": "another"}]))
    source = SourceSettings(path="a", gold="livecodebench")
    (made, function), _ = read_rows([(tmp_path / "a.parquet", "a.parquet")], source, "code")
    assert made["prompt_id"] == "1873_A"
    assert json.loads(made["answer"]) == {"inputs": ["2 3\n", "20 30\n"], "outputs": ["5\n", "50\n"]}
    assert made["prompt"].startswith("### Question:\nAdd two numbers.\n\n### Format: Read the inputs from stdin")
    assert "```python\n# YOUR CODE HERE\n```" in made["prompt"]
    tests = json.loads(function["answer"])
    assert tests == {"inputs": ["[2, 3]\n4", "[]\n4"], "outputs": ["9", "4"], "fn_name": "add"}
    assert "```python\nclass Solution:\n    def add(self, numbers" in function["prompt"]


@pytest.mark.parametrize("characters", [1, 300, 100_000])
def test_private_tests_of_any_length_and_protocol_or_plain(characters):
    tests = [one("é" * characters, "x")]
    for protocol in range(1, pickle.HIGHEST_PROTOCOL + 1):
        assert private_tests(compressed(json.dumps(tests, ensure_ascii=False), protocol)) == tests
    assert private_tests(json.dumps(tests)) == tests


class Harmful:
    def __reduce__(self):
        return os.mkdir, ("harm",)


def test_nothing_is_unpickled(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="a pickle with"):
        private_tests(compressed(Harmful()))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"private_test_cases": "?"}, "neither JSON nor compressed"),
        ({"private_test_cases": base64.b64encode(b"text").decode()}, "neither JSON nor compressed"),
        ({"private_test_cases": compressed(["[]", "[]"])}, "a pickle with"),
        ({"private_test_cases": compressed("no JSON")}, "Expecting value"),
        ({"private_test_cases": base64.b64encode(zlib.compress(b"text")).decode()}, "not a row of LiveCodeBench"),
        ({"public_test_cases": "[]", "private_test_cases": "[]"}, "no tests"),
        ({"public_test_cases": json.dumps([{"input": "1", "output": "2"}])}, "no field 'testtype'"),
        ({"public_test_cases": json.dumps([one("1", "2", "other")])}, "kinds .'other', 'stdin'"),
        ({"public_test_cases": "3"}, "not a row of LiveCodeBench"),
        ({**FUNCTION, "metadata": "{}"}, "no field 'func_name'"),
    ],
)
def test_a_row_of_another_form_is_named(changes, why):
    with pytest.raises(DataError, match=why) as caught:
        read_problem(row(**changes), "test.jsonl, line 7")
    assert caught.value.message.startswith("test.jsonl, line 7: ")
