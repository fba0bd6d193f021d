"""Programs through the real step and the real evaluation's verifier."""

from tasks.data.arithmetic import PROGRAM, problems
from tasks.settings import VerifySettings
from tasks.store.tables import read_table
from tasks.verify.pool import Verifier
from tasks.verify.step import verify_rollouts
from tests.verify.code.helpers import asserts, code_settings, fenced, texts
from tests.verify.code.problems import programs
from tests.verify.test_step import shard


def test_verdicts_of_generated_programs_are_the_known_ones(store):
    known = list(programs(0))
    assert len(known) > 80
    rows = [(one.name, 0, one.gold, f"I think\n{fenced(one.source)}\n", len(one.source), "stop") for one in known]
    ref = verify_rollouts(store, code_settings(workers=2), [shard(store, rows[:50]), shard(store, rows[50:])], 0, 0)
    verdicts = read_table(store.path(ref) / "verdicts.parquet").to_pylist()
    assert {one["prompt_id"]: one["outcome"] for one in verdicts} == {
        one.name: "correct" if one.right else "wrong" for one in known
    }
    assert [one["extracted"] for one in verdicts] == [one.source + "\n" for one in known]
    facts = store.manifest(ref).facts
    assert facts["outcomes"]["correct"] == sum(one.right for one in known)
    assert facts["working"] == 1.0


def test_other_outcomes(store):
    right, gold = "print(5)", texts(("", "5"))
    rows = [
        ("no block", 0, gold, right, 1, "stop"),
        ("another language", 0, gold, f"```c\n{right}\n```", 1, "stop"),
        ("cut off", 0, gold, f"```python\n{right}\n", 1, "length"),
        ("too long", 0, gold, fenced(right + " " * 100), 1, "stop"),
        ("missing", 0, gold, "", 0, "missing"),
        ("gold is no JSON", 0, "5", fenced(right), 1, "stop"),
        ("gold calls nothing", 0, asserts("assert True"), fenced(right), 1, "stop"),
        ("gold is too long", 0, texts(("", "5" * (2 << 20))), fenced(right), 1, "stop"),
        ("right", 0, gold, fenced("print(6)") + "\n" + fenced(right), 1, "stop"),
    ]
    settings = code_settings(max_program_characters=100, output_mib=1)
    ref = verify_rollouts(store, settings, [shard(store, rows)], 0, 0)
    outcomes = [(one["outcome"], one["reward"]) for one in read_table(store.path(ref) / "verdicts.parquet").to_pylist()]
    none, unparsable = ("no_answer", 0.0), ("gold_unparsable", None)
    assert outcomes == [none] * 4 + [("missing", None)] + [unparsable] * 3 + [("correct", 1.0)]


def test_mathematics_in_code_is_no_answer_and_the_other_way_round():
    (problem, *_) = problems(1)
    boxed, program = problem.solution(), problem.solution(form=PROGRAM)
    with Verifier(code_settings()) as verifier:
        code = verifier.verify([(problem.gold(PROGRAM), program), (problem.gold(PROGRAM), boxed)])
    with Verifier(VerifySettings(workers=1, deadline_seconds=30.0)) as verifier:
        maths = verifier.verify([(problem.gold(), boxed), (problem.gold(), program)])
    assert [one.outcome for one in code] == [one.outcome for one in maths] == ["correct", "no_answer"]
