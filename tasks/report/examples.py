"""Responses of the base policy beside those of the final one, on the same held-out problems."""

from dataclasses import dataclass
from pathlib import Path

from tasks.artifacts.tables import read_table
from tasks.report.history import History

_SHOWN_CHARACTERS = 1600
_MOST = 8
"""Examples of a policy without another one to compare it with."""
_COLUMNS = ["prompt_id", "sample_index", "prompt", "answer", "response", "outcome", "response_tokens"]


@dataclass(frozen=True)
class Response:
    """A sampled response and its verdict."""

    text: str
    outcome: str
    tokens: int

    @property
    def correct(self) -> bool:
        """Whether the verifier found its answer right."""
        return self.outcome == "correct"


@dataclass(frozen=True)
class Example:
    """A held-out problem with a response before and after training; only before when the run has no stage yet."""

    change: str
    prompt: str
    answer: str
    before: Response
    after: Response | None


def pick_examples(history: History) -> list[Example]:
    """Three problems that turned right, one that stayed wrong and one that turned wrong, as far as there are.

    They are the first of their sort in the order of the held-out problems, so nobody chose them.
    """
    if len(history.evaluated) == 1:
        return [example for one in history.evaluated[0].evaluations for example in examples_of(one.samples)][:_MOST]
    before, after = (
        {name: row for one in policy.evaluations for name, row in _first_samples(one.samples, one.benchmark).items()}
        for policy in (history.evaluated[0], history.evaluated[-1])
    )
    wanted = [("turned right", 3), ("stayed wrong", 1), ("turned wrong", 1), ("stayed right", 1)]
    examples: list[Example] = []
    for change, count in wanted:
        found = [
            Example(change, prompt, answer, response, after[prompt_id][2])
            for prompt_id, (prompt, answer, response) in before.items()
            if prompt_id in after and _change(response, after[prompt_id][2]) == change
        ]
        if change != "stayed right" or not examples:
            examples += found[:count]
    return examples


def examples_of(samples: Path) -> list[Example]:
    """Of one evaluation: two right responses and two wrong ones, as far as there are; the first of their sort."""
    responses = _first_samples(samples).values()
    return [
        Example(change, prompt, answer, response, None)
        for change, right in (("right", True), ("wrong", False))
        for prompt, answer, response in [row for row in responses if row[2].correct == right][:2]
    ]


def _change(before: Response, after: Response) -> str:
    verb = "stayed" if before.correct == after.correct else "turned"
    return f"{verb} {'right' if after.correct else 'wrong'}"


def _first_samples(path: Path, benchmark: str = "") -> dict[tuple[str, str], tuple[str, str, Response]]:
    """Prompt, answer and first sampled response by problem."""
    rows = read_table(path, columns=_COLUMNS).to_pylist()
    return {
        (benchmark, row["prompt_id"]): (
            shown(row["prompt"]),
            shown(row["answer"]),
            Response(shown(row["response"]), row["outcome"], row["response_tokens"]),
        )
        for row in rows
        if row["sample_index"] == 0
    }


def shown(text: str) -> str:
    """A text without characters that a page cannot hold; a long one keeps its start and its end."""
    visible = "".join(chr(0x2400 + ord(c)) if ord(c) < 32 and c not in "\n\t" else c for c in text)
    if len(visible) <= _SHOWN_CHARACTERS:
        return visible
    half = _SHOWN_CHARACTERS // 2
    return f"{visible[:half]}\n[... {len(visible) - 2 * half} characters ...]\n{visible[-half:]}"
