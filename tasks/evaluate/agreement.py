"""Groups the answers to a problem into classes of equal answers, for majority votes."""

from collections.abc import Mapping, Sequence
from typing import Any

from tasks.evaluate.metrics import CORRECT, NO_VOTE
from tasks.verify.pool import Verifier
from tasks.verify.verdicts import Outcome, Verdict


def answer_classes(samples: Sequence[Mapping[str, Any]], verdicts: Sequence[Verdict], verifier: Verifier) -> list[int]:
    """Return the class of every response's answer, [R]: ``CORRECT``, ``NO_VOTE``, or a number from 1 on for wrong ones.

    Responses that the verifier did not judge have no vote. Of the wrong answers to a problem the first one without a
    class starts one, and the verifier says which of the others equal it.

    Args:
        samples: with prompt_id, [R].
        verdicts: on them, [R].
        verifier: that gave them.
    """
    names = [str(sample["prompt_id"]) for sample in samples]
    left: dict[str, list[str]] = {}
    for name, verdict in zip(names, verdicts, strict=True):
        if verdict.outcome is Outcome.WRONG and verdict.extracted not in left.setdefault(name, []):
            left[name].append(verdict.extracted or "")
    classes: dict[tuple[str, str], int] = {}
    number = 0
    while left := {name: answers for name, answers in left.items() if answers}:
        number += 1
        firsts = {name: answers.pop(0) for name, answers in left.items()}
        asked = [(name, answer) for name, answers in left.items() for answer in answers]
        pairs = [(firsts[name], rf"\boxed{{{answer}}}") for name, answer in asked]
        found = verifier.verify(pairs, "") if pairs else []
        classes |= dict.fromkeys(firsts.items(), number)
        for (name, answer), verdict in zip(asked, found, strict=True):
            if verdict.outcome is Outcome.CORRECT:
                classes[name, answer] = number
                left[name].remove(answer)
    return [_class(name, verdict, classes) for name, verdict in zip(names, verdicts, strict=True)]


def _class(name: str, verdict: Verdict, classes: Mapping[tuple[str, str], int]) -> int:
    if verdict.outcome is Outcome.CORRECT:
        return CORRECT
    return classes[name, verdict.extracted or ""] if verdict.outcome is Outcome.WRONG else NO_VOTE
