"""Which gold answers the verifier can read, and whether a reward function works, before anything is generated."""

from collections.abc import Sequence

from tasks.errors import SettingsError
from tasks.prompts.files import Row
from tasks.settings import FunctionVerifySettings, VerifySettings
from tasks.verify.pool import shared_verifier
from tasks.verify.verdicts import Outcome

_SHOWN_CHARACTERS = 60


def unreadable_golds(rows: Sequence[Row], settings: VerifySettings, name: str) -> dict[str, str]:
    """The gold answers that the verifier does not find equal to themselves, by prompt_id; long ones are cut.

    Those that are tests of programs are read when a program is judged. What a function takes for an answer is its own
    matter; it is called once instead.

    Args:
        rows: with prompt_id and answer.
        settings: the verifier's.
        name: of the data, shown while it is checked.

    Raises:
        SettingsError: the reward function raises, or returns no reward, for the first prompt.
    """
    if isinstance(settings, FunctionVerifySettings):
        try_function(rows, settings)
    if settings.kind != "math":
        return {}
    pairs = [(row["answer"], rf"\boxed{{{row['answer']}}}") for row in rows]
    verdicts = shared_verifier(settings).verify(pairs, f"{name} gold answers")
    return {
        row["prompt_id"]: _shortened(row["answer"])
        for row, verdict in zip(rows, verdicts, strict=True)
        if verdict.outcome is not Outcome.CORRECT
    }


def try_function(rows: Sequence[Row], settings: FunctionVerifySettings) -> None:
    """Calls the reward function once, for the first prompt with its answer as the response.

    Raises:
        SettingsError: it raises, or returns no reward.
    """
    for row in rows[:1]:
        (verdict,) = shared_verifier(settings).verify(
            [(row["answer"], row["answer"], row["prompt"])], "reward function"
        )
        if verdict.outcome is Outcome.CRASHED:
            raise SettingsError(
                f"verify.function: {settings.function} crashed when it was called with the first prompt and, as "
                f"response and answer, {_shortened(row['answer'])!r}. The traceback is above. To fix it: return a "
                "finite number, an Outcome, or None where the response has no answer, whatever the response is."
            )


def _shortened(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[: _SHOWN_CHARACTERS - 3]}..."
