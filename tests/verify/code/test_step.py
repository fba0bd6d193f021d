"""Programs through the real step and the real evaluation's verifier."""

import random
from collections.abc import Iterator
from statistics import fmean
from textwrap import indent

from tasks.store.tables import read_table
from tasks.verify.step import verify_rollouts
from tests.verify.helpers import asserts, calls, code_settings, fenced, texts
from tests.verify.test_step import shard

# Functions of a list of whole numbers: what they must give, and bodies that do, or do not.
TASKS = {
    "total": (sum, ["return sum(x)", "t = 0\nfor one in x: t += one\nreturn t"], ["return sum(x[1:])", "return 0"]),
    "largest": (
        max,
        ["return max(x)", "return sorted(x)[-1]", "return -heapq.nsmallest(1, [-one for one in x])[0]"],
        ["return x[0]", "return min(x)", "return max(x) + 1e-3", "return str(max(x))"],
    ),
    "ordered": (sorted, ["return sorted(x)", "x.sort()\nreturn x"], ["return x", "return x.sort()", "return set(x)"]),
    "mean": (fmean, ["return statistics.fmean(x)", "return sum(x) / len(x)"], ["return sum(x) // len(x)"]),
    "pairs": (
        lambda x: [[one, x.count(one)] for one in sorted(set(x))],
        ["return [[one, x.count(one)] for one in sorted(set(x))]", "return sorted(map(list, Counter(x).items()))"],
        ["return Counter(x)", "return [[one, 1] for one in x]", "return list(zip(x, x))"],
    ),
}


def programs() -> Iterator[tuple[str, str, str, bool]]:
    """Name, gold answer, source, and whether it is right: every body as a function that is called, a method, one with
    assertions, and a program with standard input."""
    draw = random.Random(0)
    for task, (truth, right_bodies, wrong_bodies) in TASKS.items():
        lists = [[draw.randint(-99, 99) for _ in range(draw.randint(3, 9))] for _ in range(4)] + [[3, 1, 2, 3, 1]]
        called = calls(task, *(([one], truth(list(one))) for one in lists))
        asserted = asserts(
            *(f"assert {task}({one}) == {truth(list(one))!r}" for one in lists[:2]),
            f"assert abs(hash(str({task}({lists[2]}))) - hash(str({truth(list(lists[2]))!r}))) == 0",
        )
        read = texts(*((" ".join(map(str, one)), str(truth(list(one)))) for one in lists))
        bodies = [(body, True) for body in right_bodies] + [(body, False) for body in wrong_bodies]
        for number, (body, right) in enumerate(bodies):
            name = f"{task}-{number}"
            function = f"def {task}(x):\n{indent(body, '    ')}"
            method = indent(function.replace("(x):", "(self, x):", 1), "    ")
            yield f"{name}-called", called, function, right
            yield f"{name}-method", called, f"class Solution:\n{method}", right
            yield f"{name}-asserted", asserted, function, right
            if "return str" not in body:  # which prints alike
                reads = f"print({task}(list(map(int, input().split()))))"
                yield f"{name}-reads", read, f"{function}\nif __name__ == '__main__':\n    {reads}", right


def test_verdicts_of_generated_programs_are_the_known_ones(store):
    known = list(programs())
    assert len(known) > 80
    rows = [(name, 0, gold, f"I think\n{fenced(source)}\n", len(source), "stop") for name, gold, source, _ in known]
    ref = verify_rollouts(store, code_settings(workers=2), [shard(store, rows[:50]), shard(store, rows[50:])], 0, 0)
    verdicts = read_table(store.path(ref) / "verdicts.parquet").to_pylist()
    assert {one["prompt_id"]: one["outcome"] for one in verdicts} == {
        name: "correct" if right else "wrong" for name, _, _, right in known
    }
    assert [one["extracted"] for one in verdicts] == [f"{source}\n" for _, _, source, _ in known]
    facts = store.manifest(ref).facts
    assert facts["outcomes"]["correct"] == sum(right for _, _, _, right in known)
    assert facts["working"] == 1.0


def test_a_response_without_a_program_and_an_unreadable_gold_answer_have_their_outcomes(store):
    right, gold = "print(5)", texts(("", "5"))
    rows = [
        ("no block", 0, gold, right, 1, "stop"),
        ("another language", 0, gold, f"```c\n{right}\n```", 1, "stop"),
        ("cut off", 0, gold, f"```python\n{right}\n", 1, "length"),
        ("too long", 0, gold, fenced(right + " " * 100), 1, "stop"),
        ("missing", 0, gold, "", 0, "missing"),
        ("gold is not JSON", 0, "5", fenced(right), 1, "stop"),
        ("gold calls nothing", 0, asserts("assert True"), fenced(right), 1, "stop"),
        ("gold is too long", 0, texts(("", "5" * (2 << 20))), fenced(right), 1, "stop"),
        ("right", 0, gold, fenced("print(6)") + "\n" + fenced(right), 1, "stop"),
    ]
    settings = code_settings(max_program_characters=100, output_mib=1)
    ref = verify_rollouts(store, settings, [shard(store, rows)], 0, 0)
    outcomes = [(one["outcome"], one["reward"]) for one in read_table(store.path(ref) / "verdicts.parquet").to_pylist()]
    none, unparsable = ("no_answer", 0.0), ("gold_unparsable", None)
    assert outcomes == [none] * 4 + [("missing", None)] + [unparsable] * 3 + [("correct", 1.0)]
