"""Count how often the verifier agrees with the tests of other projects.

    python -m tools.pairs

``pairs.jsonl`` has gold answers, answers and verdicts; nothing else was taken from their sources, which
docs/verifying.md names. Each line has the verdict of its source. If a person's verdict differs, the line has it as
``person``, with the reason as ``why``. If the verifier differs from the person, the line has the reason as ``missed``.
"""

import json
import logging
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

import math_verify

from tasks.settings import MathVerifySettings
from tasks.verify.pool import Verifier
from tasks.verify.verdicts import Outcome

Pair = dict[str, str]
_PATIENCE = 20
FILE = Path(__file__).with_name("pairs.jsonl")


def pairs() -> list[Pair]:
    return [json.loads(line) for line in FILE.read_text(encoding="utf-8").splitlines()]


def expected(pair: Pair) -> str:
    """Return the verdict of a person."""
    return pair.get("person", pair["verdict"])


def judge_pairs(several: Sequence[Pair]) -> list[str]:
    """Return the verifier's verdicts, ``correct`` or ``wrong``. An answer that cannot be read is wrong."""
    with Verifier(MathVerifySettings(workers=2, deadline_seconds=5.0)) as verifier:
        found = verifier.verify([(pair["gold"], rf"\boxed{{{pair['answer']}}}") for pair in several])
    return ["correct" if verdict.outcome is Outcome.CORRECT else "wrong" for verdict in found]


def by_math_verify(several: Sequence[Pair]) -> list[str]:
    """Return the verdicts of math-verify alone, with its defaults but a longer deadline of wall-clock time."""
    logging.disable(logging.CRITICAL)
    sides = [
        [math_verify.parse(rf"\boxed{{{pair[side]}}}", parsing_timeout=_PATIENCE) for side in ("gold", "answer")]
        for pair in several
    ]
    found = [
        "correct" if math_verify.verify(gold, answer, timeout_seconds=_PATIENCE) else "wrong" for gold, answer in sides
    ]
    logging.disable(logging.NOTSET)
    return found


def main() -> None:
    several = pairs()
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for pair, alone, ours in zip(several, by_math_verify(several), judge_pairs(several), strict=True):
        met = {"math-verify alone": alone == expected(pair), "the verifier": ours == expected(pair)}
        for column, is_counted in {"pairs": True, "noted": "person" in pair, **met}.items():
            for name in (pair["source"].partition("/")[0], "all"):
                counts[name][column] += is_counted
    for name, counter in counts.items():
        print(name, dict(counter))


if __name__ == "__main__":
    main()
