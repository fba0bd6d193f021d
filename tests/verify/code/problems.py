"""A small generated set of code problems: with programs whose verdicts are known, in all three forms of tests."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tests.verify.code.helpers import asserts, calls, texts


@dataclass(frozen=True)
class Program:
    """A program for a problem, and whether it solves it."""

    name: str
    gold: str
    source: str
    right: bool


@dataclass(frozen=True)
class Task:
    """A function of a list of whole numbers: what it must give, and bodies that do, or do not."""

    name: str
    truth: Callable[[list[int]], object]
    right: list[str]
    wrong: list[str]


TASKS = [
    Task("total", sum, ["return sum(x)", "t = 0\nfor one in x: t += one\nreturn t"], ["return sum(x[1:])", "return 0"]),
    Task(
        "largest",
        max,
        ["return max(x)", "return sorted(x)[-1]", "return -heapq.nsmallest(1, [-one for one in x])[0]"],
        ["return x[0]", "return min(x)", "return max(x) + 1e-3", "return str(max(x))"],
    ),
    Task(
        "ordered", sorted, ["return sorted(x)", "x.sort()\nreturn x"], ["return x", "return x.sort()", "return set(x)"]
    ),
    Task(
        "mean",
        lambda x: sum(x) / len(x),
        ["return statistics.fmean(x)", "return sum(x) / len(x)"],
        ["return sum(x) // len(x)"],
    ),
    Task(
        "pairs",
        lambda x: [[one, x.count(one)] for one in sorted(set(x))],
        ["return [[one, x.count(one)] for one in sorted(set(x))]", "return sorted(map(list, Counter(x).items()))"],
        ["return Counter(x)", "return [[one, 1] for one in x]", "return list(zip(x, x))"],
    ),
]


def _indented(body: str) -> str:
    return "\n".join(f"    {line}" for line in body.splitlines())


def programs(seed: int) -> Iterator[Program]:
    """Every body as a function that is called, a method, one with assertions, and a program with standard input."""
    draw = random.Random(seed)
    for task in TASKS:
        lists = [[draw.randint(-99, 99) for _ in range(draw.randint(3, 9))] for _ in range(4)] + [[3, 1, 2, 3, 1]]
        called = calls(task.name, *(([one], task.truth(list(one))) for one in lists))
        asserted = asserts(
            *(f"assert {task.name}({one}) == {task.truth(list(one))!r}" for one in lists[:2]),
            f"assert abs(hash(str({task.name}({lists[2]}))) - hash(str({task.truth(list(lists[2]))!r}))) == 0",
        )
        read = texts(*((" ".join(map(str, one)), str(task.truth(list(one)))) for one in lists))
        for right, bodies in ((True, task.right), (False, task.wrong)):
            for number, body in enumerate(bodies):
                name = f"{task.name}-{'right' if right else 'wrong'}-{number}"
                function = f"def {task.name}(x):\n{_indented(body)}"
                yield Program(f"{name}-called", called, function, right)
                yield Program(f"{name}-method", called, f"class Solution:\n{_indented(_of_self(function))}", right)
                yield Program(f"{name}-asserted", asserted, function, right)
                if "return str" not in body:  # which prints alike
                    reads = f"print({task.name}(list(map(int, input().split()))))"
                    yield Program(f"{name}-reads", read, f"{function}\nif __name__ == '__main__':\n    {reads}", right)


def _of_self(function: str) -> str:
    return function.replace("(x):", "(self, x):", 1)
