"""Which gold answers the verifier can read, before anything is generated for them."""

from collections.abc import Sequence

from tasks.prompts.files import Row
from tasks.settings import VerifySettings
from tasks.verify.verdicts import Outcome
from tasks.verify.verifier import standing

_SHOWN_CHARACTERS = 60


def unreadable_golds(rows: Sequence[Row], settings: VerifySettings, name: str) -> dict[str, str]:
    """The gold answers that the verifier does not find equal to themselves, by prompt_id; long ones are cut.

    Those that are tests of programs are read when a program is judged.

    Args:
        rows: with prompt_id and answer.
        settings: the verifier's.
        name: of the data, shown while it is checked.
    """
    if settings.kind == "code":
        return {}
    pairs = [(row["answer"], rf"\boxed{{{row['answer']}}}") for row in rows]
    verdicts = standing(settings).verify(pairs, f"{name} gold answers")
    return {
        row["prompt_id"]: _shortened(row["answer"])
        for row, verdict in zip(rows, verdicts, strict=True)
        if verdict.outcome is not Outcome.CORRECT
    }


def _shortened(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[: _SHOWN_CHARACTERS - 3]}..."
