"""A function of the user's own is found, looked at and told apart by its source, and its module is not run."""

import json
import sys
from importlib.machinery import PathFinder
from pathlib import Path
from types import SimpleNamespace

import pytest

from tasks.errors import SettingsError
from tasks.flyte.inputs import VerifyInputs
from tasks.settings import MathVerifySettings, RunSettings, VerifySettings
from tasks.settings.functions import find_function
from tools.runs import CONFIG

SCORE = "def score(prompt, response, answer):\n    return 1.0\n"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a module ``mine``."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(SCORE)
    return tmp_path


def read(**given: object) -> VerifySettings:
    return VerifySettings.parse({"kind": "function", "function": "mine:score", **given})


def test_a_function_in_a_file_of_the_current_folder(here: Path) -> None:
    (here / "mine.py").write_text(f"raise SystemExit('this is not run')\n{SCORE}")
    assert len(read().source_digest) == 64
    assert find_function("mine:score").root == here


def test_a_function_in_a_package_that_can_be_imported(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = here / "elsewhere/rewards/inner"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").touch()
    (package / "mine.py").write_text(SCORE)
    monkeypatch.syspath_prepend(here / "elsewhere")
    found = find_function("rewards.inner.mine:score")
    assert found.root == here / "elsewhere"
    hidden = (here / "elsewhere").rename(here / "hidden")
    hook = SimpleNamespace(find_spec=lambda name, *_: PathFinder.find_spec(name, [str(hidden)]))
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, hook])  # As pip install -e does.
    assert find_function("rewards.inner.mine:score").root == hidden


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "there is no module mine, neither in the current folder"),
        ("def other(a, b, c): ...\n", "has no function score; it has other"),
        ("x = 1\n", "has no function score; it has no function"),
        ("def score(prompt, response): ...\n", r"score\(prompt, response\) in .*mine.py, line 1; allowed: .* three"),
        ("def score(a, b, c, d): ...\n", "allowed: a function that can be called with three arguments"),
        ("def score(a, b, c, *, scale): ...\n", "allowed: a function that can be called with three arguments"),
        ("async def score(a, b, c): ...\n", "is a coroutine; allowed: a plain function"),
        ("def score(:\n", "is not Python"),
    ],
)
def test_an_object_that_is_no_reward_function_is_refused(here: Path, text: str | None, message: str) -> None:
    (here / "mine.py").unlink()
    if text is not None:
        (here / "mine.py").write_text(text)
    with pytest.raises(SettingsError, match=rf"verify.function: got 'mine:score'; .*{message}"):
        read()


def test_an_imported_file_that_is_not_python_is_named(here: Path) -> None:
    (here / "mine.py").write_text(f"import helper\n{SCORE}")
    (here / "helper.py").write_bytes(b"x = '\xe9'\n")
    with pytest.raises(SettingsError, match=r"verify.function: got 'mine:score'; .*helper.py is not Python"):
        read()


@pytest.mark.parametrize(
    "text",
    [
        "def score(prompt, response, answer, scale=2): ...\n",
        "def score(*texts): ...\n",
        "from json import dumps as score\n",
        "if True:\n    score = lambda *texts: 1\n",
        "def score(): ...\nscore = lambda *texts: 1\n",
        "from json import *\n",
    ],
)
def test_an_object_that_may_be_callable_is_left_to_the_worker(here: Path, text: str) -> None:
    (here / "mine.py").write_text(text)
    read()


def test_the_key_of_verification_follows_the_source_and_nothing_else(here: Path) -> None:
    (here / "package/stars").mkdir(parents=True)
    (here / "package/__init__.py").touch()
    (here / "package/stars/__init__.py").write_text("__all__ = ['sun']\n")
    (here / "helper.py").write_text("from package import deep\nfrom package.stars import *\n")

    def key(changed: str, text: str) -> str:
        (here / changed).write_text(text)
        return VerifyInputs(store={"uri": "store", "id": "x"}, seed=0, settings=read()).key()  # type: ignore[arg-type]

    (here / "package/deep.py").write_text("LIMIT = 1\n")
    (here / "package/stars/sun.py").touch()
    first = key("mine.py", f"import helper\n{SCORE}")
    assert key("unrelated.py", "x = 2\n") == first
    second, third = key("package/deep.py", "LIMIT = 2\n"), key("package/stars/sun.py", "LIMIT = 3\n")
    assert len({first, second, third, key("mine.py", f"import helper\n{SCORE}    # longer\n")}) == 4


def test_settings_that_were_read_before_need_no_file(here: Path) -> None:
    settings = read()
    (here / "mine.py").unlink()
    assert VerifySettings.model_validate_json(settings.model_dump_json()) == settings


def test_a_copied_digest_is_computed_anew_when_a_user_gives_the_settings(here: Path) -> None:
    run = RunSettings.read(CONFIG, "verify.kind=function verify.function=mine:score")
    (here / "mine.py").write_text(SCORE.replace("1.0", "2.0"))
    digest = find_function("mine:score").digest
    for verify in (RunSettings.merged(run.given(), "").verify, run.verify.renewed()):
        assert verify == run.verify.model_copy(update={"source_digest": digest}) != run.verify
    assert MathVerifySettings(workers=3).renewed() == MathVerifySettings(workers=3)


def test_a_benchmark_of_mathematics_is_judged_as_such_in_a_run_with_a_function() -> None:
    same = {"name": "same", "answer_type": "function", "source": {"arithmetic": {}}}
    benchmarks = json.dumps(["held_out", same, {"name": "math500", "problems": 10}])
    given = f"verify.deadline_seconds=7 evaluate.benchmarks='{benchmarks}' policy='{{path: some/policy}}'"
    run = RunSettings.read(CONFIG, f"verify.kind=function verify.function=mine:score {given}")
    own, asked, known = (one.verify for one in run.measurements)
    assert own.kind == asked.kind == "function"
    assert known == MathVerifySettings(workers=1, deadline_seconds=7.0)
