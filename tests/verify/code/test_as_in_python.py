"""Programs that plain Python takes are judged by what they give there."""

import subprocess
import sys

import pytest

from tasks.verify.verdicts import Outcome
from tests.verify.helpers import asserts, calls, code_settings, fenced, texts

LARGE = "1" + "0" * 4999
NAMES = "from collections import deque\nfrom datetime import date, datetime, timedelta\nfrom fractions import Fraction"
PRINT = {
    "a standard output put aside": (
        "import atexit, io, sys\nout = sys.stdout = io.StringIO()\nprint(5)\n"
        "atexit.register(lambda: sys.__stdout__.write(out.getvalue()))"
    ),
    "a standard output detached": "import io, sys\nsys.stdout = io.TextIOWrapper(sys.stdout.detach())\nprint(5)",
    "a thread": "import threading as t, time\nt.Thread(target=lambda: (time.sleep(0.2), print(5))).start()",
    "the current folder": "import os\nprint(5 if os.getcwd() else 6)",
    "no arguments": "import argparse\nargparse.ArgumentParser().parse_args()\nprint(5)",
    "another file on standard output": "out = open(1, 'w')\nout.write('5')",
    "a standard output of its own, whose flush needs a module": (
        "import os, sys\nclass Fast:\n kept = []\n write = kept.append\n"
        " def flush(self): os.write(1, ''.join(self.kept).encode())\nsys.stdout = Fast()\nprint(5)"
    ),
    "run as a script": "if __name__ == '__main__': exit(print(5))",
    "standard output closed": "import sys\nprint(5)\nsys.stdout.close()\nsys.stdout = None",
    "written by an end of an object": (
        "import io, sys\nsys.stdout = io.StringIO()\nclass Last:\n def __del__(self): print(5)\nlast = Last()"
    ),
    "type hints of the program's own": (
        "from __future__ import annotations\nfrom dataclasses import dataclass\nimport typing\n"
        "class Other: pass\n@dataclass\nclass Point:\n x: int\n y: Other\n"
        "assert typing.get_type_hints(Point)['y'] is Other\nprint(Point(5, None).x)"
    ),
    "a limit other than CPU time": "import resource as r\nr.setrlimit(r.RLIMIT_STACK, (1 << 23, 1 << 26))\nprint(5)",
    "pickled": "import pickle\nclass Point: x = 5\nprint(pickle.loads(pickle.dumps(Point())).x)\nexit(0)",
}
RESULTS = {
    "a dataclass with annotations as texts": (
        calls("f", ([2], "2")),
        "from __future__ import annotations\nfrom dataclasses import dataclass\n@dataclass\nclass P:\n x: int\n"
        "def f(n): return str(P(n).x)",
    ),
    "a method": (calls("f", ([[2, 3]], 5)), "def f(): pass\nclass Solution:\n def f(o, x): return print(x) or sum(x)"),
    "a function that it imports": (asserts("assert gcd(12, 18) == 6"), "from math import gcd"),
    "a large number": (
        f'{{"fn_name": "f", "inputs": [[4999]], "outputs": [{LARGE}]}}',
        "exec('def f(n):return 10**n')",
    ),
    "an iterator of bytes, a deque, numbers, times and a text of an enumeration": (
        asserts(
            "assert [*f(datetime(1, 2, 3))] == [b'2', b'3', deque([3]), Fraction(1, 3), 1.5, 'a', date(1, 2, 3),"
            " datetime(1, 2, 3, 4), timedelta(0, 5)]",
            setup=NAMES,
        ),
        "import decimal, enum, fractions\nclass E(str, enum.Enum): A = 'a'\ndef f(at):\n"
        " yield from (b'2', bytearray(b'3'), deque([3]), fractions.Fraction(1, 3), decimal.Decimal('1.5'), E.A)\n"
        " yield from (at.date(), at.replace(hour=4), datetime.timedelta(0, 5))",
    ),
    "a range, a complex number and views of a dict": (
        asserts("assert f(3)[:4] == [range(0, 3, 2), 1j, {4}, {(4, 5)}]", "assert [*f(3)[4]] == [5]"),
        "def f(n):\n d = {4: 5}\n return [range(0, n, 2), 1j, d.keys(), d.items(), d.values()]",
    ),
    "attributes of results, and arguments that the program defines": (
        asserts("assert f(inc, P.X).v == 3", "assert re.match('4', f(str, max(2, 4)).v).end() == 1"),
        "max = 0\nclass P:\n X = 2\n def __init__(self, v): self.v = v\n"
        "def inc(x): return x + 1\ndef f(g, x): return P(g(x))\nif __name__ == '__main__': 1 / 0",
    ),
    "arguments that the setup makes of other names, and of a class of the program, as in MBPP": (
        asserts(
            "assert f(root, two) == right[0]",
            setup="class R(N): pass\nlist_ = [1]\nroot = R()\nroot.x = list_\nfor one in [2, 3]: list_.append(one)\n"
            "def half(x): return x // 2\ntwo: int = half(5)\ntwo += 0\nright = [8]",
        ),
        "class N: pass\ndef f(node, n): return sum(node.x) + n",
    ),
    "a module that nobody imported": (asserts("assert math.isclose(f(math.pi), math.tau)"), "def f(x): return 2 * x"),
    "the item of a list, as in APPS": (calls("f", ([2], [3]), ([4], [5])), "def f(x): return x + 1"),
    "no function": ('{"inputs": ["1", "2"], "outputs": ["2", "3"], "fn_name": null}', "print(int(input()) + 1)"),
    "a number of LiveCodeBench's length, read and written": (texts((LARGE, LARGE)), "print(int(input()))"),
}
VERIFIER = code_settings()


def outcome(verifier, gold, program):
    (verdict,) = verifier.verify([(gold, fenced(program))])
    return verdict.outcome


@pytest.mark.parametrize("program", PRINT.values(), ids=PRINT.keys())
def test_the_output_of_python_is_compared(verifier, program):
    plain = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (plain.returncode, plain.stdout.strip()) == (0, "5"), plain.stderr
    assert outcome(verifier, texts(("", "5\n")), program) is Outcome.CORRECT
    assert outcome(verifier, texts(("", "6\n")), program) is Outcome.WRONG


@pytest.mark.parametrize(("gold", "program"), RESULTS.values(), ids=RESULTS.keys())
def test_what_gives_the_right_result_in_python_is_correct(verifier, gold, program):
    assert outcome(verifier, gold, program) is Outcome.CORRECT
