"""Gold answers, answers and verdicts of other people's tests, and how many of them are met.

    python -m tests.verify.pairs

A line of pairs.jsonl has the verdict of its source. Where a person would say otherwise it has that verdict besides, as
``person``, and the reason, as ``why``. What the verifier says otherwise than a person has the reason as ``missed``.
"""

import json
import logging
from collections import Counter
from collections.abc import Sequence
from itertools import compress
from pathlib import Path

import math_verify

from tasks.settings import VerifySettings
from tasks.verify.pool import Verifier
from tasks.verify.verdicts import Outcome

Pair = dict[str, str]
_PATIENCE = 20
FILE = Path(__file__).with_name("pairs.jsonl")
_MARIO = "math_evaluation/tests/test_is_equiv.py"
SOURCES = {
    "math-verify": ("huggingface/Math-Verify", "tests, and issues by number", "5d148cfaaf99", "Apache-2.0"),
    "lighteval": ("huggingface/lighteval", "tests/unit/metrics/test_extractive_match.py", "3fd15266bc84", "MIT"),
    "latex2sympy2-extended": ("huggingface/latex2sympy2_extended", "tests", "02999f5d79ec", "MIT"),
    "mario-eval": ("MARIO-Math-Reasoning/MARIO_EVAL", _MARIO, "13584f20b71f", "none stated"),
    "skythought": ("NovaSky-AI/SkyThought", "tests/evals/util/test_math_parsing.py", "0d190f11fd8e", "Apache-2.0"),
    "olympiadbench": ("OpenBMB/OlympiadBench", "eval/scoring_examples.json", "ba5b26a7e284", "MIT"),
    "nemo-skills": ("NVIDIA/NeMo-Skills", "tests/test_math_equal.py", "0b012df8a09c", "Apache-2.0"),
    "qwen-math": ("QwenLM/Qwen2.5-Math", "evaluation/grader.py, its test", "a45202bd16f1", "MIT"),
    "areal": ("inclusionAI/AReaL", "tests/test_math_verify_reward.py", "4aef98d8d818", "Apache-2.0"),
    "hendrycks-math": ("hendrycks/math", "modeling/math_equivalence_test.py", "985bdc1696e8", "MIT"),
    "open-instruct": ("allenai/open-instruct", "open_instruct/test_math_utils.py", "e6c3044aa620", "Apache-2.0"),
    "trl": ("huggingface/trl", "tests/test_rewards.py", "f2cd57710ae3", "Apache-2.0"),
    "verifiers": ("PrimeIntellect-ai/verifiers", "tests/test_math_rubric.py", "a60a606ecc4d", "MIT"),
    "lm-eval": ("EleutherAI/lm-evaluation-harness", "issues by number", "", "MIT"),
}
"""Repository, path, commit and licence. Of each only gold answers, answers and verdicts were taken."""


def pairs() -> list[Pair]:
    return [json.loads(line) for line in FILE.read_text(encoding="utf-8").splitlines()]


def expected(pair: Pair) -> str:
    """The verdict of a person."""
    return pair.get("person", pair["verdict"])


def judge_pairs(several: Sequence[Pair]) -> list[str]:
    """What the verifier says: correct, or wrong, which an answer also is that it cannot read."""
    with Verifier(VerifySettings(workers=2, deadline_seconds=5.0)) as verifier:
        found = verifier.verify([(pair["gold"], rf"\boxed{{{pair['answer']}}}") for pair in several])
    return ["correct" if verdict.outcome is Outcome.CORRECT else "wrong" for verdict in found]


def by_math_verify(several: Sequence[Pair]) -> list[str]:
    """What math-verify says by itself, with its defaults but for its deadline, which is by the clock."""
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
    names = [pair["source"].partition("/")[0] for pair in several]
    columns = {
        "pairs": Counter(names),
        "noted": Counter(name for name, pair in zip(names, several, strict=True) if "person" in pair),
    }
    for column, found in (("math-verify alone", by_math_verify(several)), ("the verifier", judge_pairs(several))):
        met = [one == expected(pair) for pair, one in zip(several, found, strict=True)]
        columns[column] = Counter(compress(names, met))
    print(f"| source | path | commit | licence | {' | '.join(columns)} |\n|---|---|---|---|{'---|' * len(columns)}")
    for name, (repository, path, commit, licence) in SOURCES.items():
        counts = " | ".join(str(counter[name]) for counter in columns.values())
        print(f"| {repository} | {path} | {commit or '-'} | {licence} | {counts} |")
    print(f"| all | | | | {' | '.join(str(counter.total()) for counter in columns.values())} |")


if __name__ == "__main__":
    main()
