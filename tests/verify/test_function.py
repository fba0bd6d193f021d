"""A reward function of the user's own, in the same killable workers."""

import math
import os
import signal
from pathlib import Path

import numpy as np
import psutil
import pytest

from tasks.data.benchmarks import unreadable_golds
from tasks.errors import SettingsError
from tasks.settings import SourceSettings, VerifySettings
from tasks.verify import Outcome
from tasks.verify.pool import Verifier
from tasks.verify.verdicts import Judgement
from tasks.verify.worker import judgement_of
from tests.prepared import run_python
from tests.waiting import until

ENDS: dict[str, tuple[str, Outcome, float | None]] = {
    "raises": ("raise KeyboardInterrupt(answer * 5000)", Outcome.CRASHED, None),
    "loops": ("while True: pass", Outcome.TIMEOUT, None),
    "eats": ("held.append(bytearray(8 << 30))", Outcome.CRASHED, None),
    "exits": ("sys.exit(0)", Outcome.CRASHED, None),
    "dies": ("os._exit(3)", Outcome.CRASHED, None),
    "reads": ("return float(input())", Outcome.CRASHED, None),
    "starts": ("subprocess.run(['head', '-n', '2'], check=True); return True", Outcome.CORRECT, 1.0),
    "forks": ("os.fork() or sys.exit(3); os.wait(); return True", Outcome.CORRECT, 1.0),
    "terminates": ("p = subprocess.Popen(['sleep', '9']); p.terminate(); return p.wait() < 0", Outcome.CORRECT, 1.0),
    "prints": ("print('noise', flush=True); return True", Outcome.CORRECT, 1.0),
    "none": ("return None", Outcome.NO_ANSWER, 0.0),
    "outcome": ("return Outcome.GOLD_UNPARSABLE", Outcome.GOLD_UNPARSABLE, None),
    "": ("pass", Outcome.WRONG, -0.5),
    "more": ("pass", Outcome.CORRECT, 3.5),
}
"""What the function does with a response, and the outcome and the reward that it then has."""
BRANCHES = "".join(f"    if response == {response!r}:\n        {does}\n" for response, (does, *_) in ENDS.items())
REWARDS = f"""
import os, subprocess, sys

from tasks.verify import Outcome

print("noise of the module", flush=True)
held = []

def score(prompt, response, answer):
{BRANCHES}
    return len(response) - 2.5 + (prompt == "P") + (answer == "A")
"""


@pytest.fixture(autouse=True)
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    made = tmp_path / "my_rewards.py"
    made.write_text(REWARDS)
    (tmp_path / "tasks.py").touch()  # A user's file with the name of the project's package.
    return made


def function_settings(**given: object) -> VerifySettings:
    values = {"kind": "function", "function": "my_rewards:score", "workers": 1, "deadline_seconds": 1.0, **given}
    return VerifySettings.parse(values)


def test_the_end_of_a_reward_function_has_its_outcome(capsys: pytest.CaptureFixture[str]) -> None:
    expected = {response: (outcome, reward) for response, (_, outcome, reward) in ENDS.items()}
    with Verifier(function_settings()) as verifier:
        verdicts = verifier.verify([("A", response, "P") for response in [*expected, None]])
        again = verifier.verify([("B", "raises", "P"), ("B", "more", "Q")])
    assert {name: (one.outcome, one.reward) for name, one in zip(expected, verdicts, strict=False)} == expected
    assert verdicts[-1].outcome is Outcome.MISSING
    assert {(one.extracted, one.shows_working) for one in verdicts[:-1]} == {(None, None)}
    assert [(one.outcome, one.reward) for one in again] == [(Outcome.CRASHED, None), (Outcome.CORRECT, 1.5)]
    told = capsys.readouterr().out
    assert told.count("Traceback") == told.count("which is the reward 0, for 1 response, and -0.5 for another") == 1
    assert "KeyboardInterrupt: A" in told


@pytest.mark.parametrize(
    ("value", "judgement"),
    [
        (1, (Outcome.CORRECT, 1.0)),
        (0.999, (Outcome.WRONG, 0.999)),
        (np.float32(2), (Outcome.CORRECT, 2.0)),
        (np.array(0.5), (Outcome.WRONG, 0.5)),
        (Outcome.WRONG, (Outcome.WRONG, None)),
        (Outcome.MISSING, (Outcome.CRASHED, None)),  # The response is there, and its tokens count.
        *((value, (Outcome.CRASHED, None)) for value in ("correct", math.nan, math.inf, 1e300, np.zeros(2))),
    ],
    ids=repr,
)
def test_the_value_of_a_reward_function_has_its_outcome(value: object, judgement: tuple[Outcome, float | None]) -> None:
    found = judgement_of(lambda *_: value, "", "", "", 1.0)
    assert found[:2] == judgement
    assert (found.error is not None) == (found.outcome is Outcome.CRASHED)
    assert judgement_of(lambda *_: 0.5, "", "", "", 0.5) == Judgement(Outcome.CORRECT, 0.5)


@pytest.mark.parametrize(
    ("text", "last_words"),
    [
        (f"import no_such_package\n{REWARDS}", "No module named 'no_such_package'"),
        ("score = lambda prompt, response: 1\n", "cannot be called with three arguments"),
    ],
)
def test_a_module_that_a_worker_cannot_use_is_an_error_with_its_last_words(file: Path, text: str, last_words: str):
    file.write_text(text)
    message = rf"verify.function: my_rewards:score; .*{last_words}.* verify.memory_mib \(2048\)"
    with pytest.raises(SettingsError, match=message), Verifier(function_settings()) as verifier:
        verifier.verify([("A", "x", "P")])


def test_a_file_of_the_same_size_and_time_is_another_function(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    rewards = []
    for reward in ("0.25", "0.75"):
        file.write_text(f"def score(prompt, response, answer):\n    return {reward}\n")
        os.utime(file, (1_000_000_000, 1_000_000_000))
        with Verifier(function_settings()) as verifier:
            (verdict,) = verifier.verify([("A", "response", "P")])
        rewards.append(verdict.reward)
    assert rewards == [0.25, 0.75]


def test_a_source_that_changed_after_the_settings_were_read_is_refused(file: Path) -> None:
    settings = function_settings()
    file.write_text(REWARDS.replace("2.5", "3.5"))
    with pytest.raises(SettingsError, match="changed since the run began"):
        Verifier(settings)
    file.unlink()
    with pytest.raises(SettingsError, match="there is no module my_rewards"):
        Verifier(settings)


def test_what_a_function_starts_ends_with_the_process_that_asks(file: Path) -> None:
    file.write_text(
        "import psutil, subprocess\ndef score(*texts):\n"
        f"    print(subprocess.Popen(['sleep', '600']).pid, file=open('{file}.pid', 'w'), flush=True)\n"
        "    psutil.Process().parent().parent().kill()\n"
    )
    ask = "from tests.verify.test_function import *; Verifier(function_settings()).verify([('A', 'x', 'P')])"
    assert run_python(ask, PYTHONPATH=str(file.parent)).returncode == -signal.SIGKILL
    pid = int(Path(f"{file}.pid").read_text())
    zombie = {"status": psutil.STATUS_ZOMBIE}
    until(lambda: all(one.pid != pid or one.info == zombie for one in psutil.process_iter(["status"])))


def test_a_function_that_fails_on_the_first_prompt_is_refused_before_anything_is_generated(capsys) -> None:
    good, *bad = ({"prompt_id": "a", "prompt": "P", "answer": answer} for answer in ("42", "dies", "loops"))
    settings, source = function_settings(), SourceSettings(path="mine.jsonl")
    assert unreadable_golds([good, *bad], source, settings, "mine") == {}
    for row, outcome in zip(bad, ("crashed", "timeout"), strict=True):
        with pytest.raises(SettingsError, match=f"called with the first prompt.*'{row['answer']}': {outcome}"):
            unreadable_golds([row], source, settings, "mine")
    assert "error of the function:\nthe process that called it ended with status 3" in capsys.readouterr().out
