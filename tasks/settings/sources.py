"""Rows of a data set: their source, and the fields with prompt and gold answer."""

import re
from typing import Literal

from pydantic import Field, model_validator

from tasks.settings.base import Number, Settings
from tasks.settings.places import FilePlace

COMMIT = re.compile(r"[0-9a-f]{40}")


class ArithmeticSettings(Settings):
    """Generated arithmetic. Training and held-out problems never overlap, whatever the seed."""

    levels: list[Literal[1, 2, 3, 4]] = Field([2], min_length=1)
    """Difficulty: 1 is a+b, 2 is a+b*c, 3 is a*b+c*d, 4 is (a+b)*c-d."""
    held_out_share: Number = Field(0.1, gt=0, lt=1)
    """Share of each level's problems that training never sees, chosen by a hash of the problem."""
    as_code: bool = False
    """An answer is a program that prints the number, for verify.kind code, in place of a box with it."""


class SourceSettings(Settings):
    """Rows with a prompt and a gold answer. Give exactly one of hub, path and arithmetic."""

    hub: str | None = None
    """A data set on the Hugging Face hub, as in ``openai/gsm8k``."""
    revision: str = "main"
    """A commit, tag or branch on the hub; a commit always names the same rows."""
    commit: str = ""
    """Commit that ``revision`` names; looked up when a run opens, unless it is given."""
    files: list[str] = Field([])
    """Files of the data set on the hub, in the order of their rows."""
    path: FilePlace | None = None
    """A JSON-lines, JSON or parquet file of your own, or a folder of such files; here or at an ``s3://`` address."""
    arithmetic: ArithmeticSettings | None = None
    """Generated problems, those that training never sees."""
    prompt: str = "prompt"
    """The field with the prompt: a text, or messages with role and content, which are taken as they are."""
    answer: str = "answer"
    """The field with the gold answer; ``reward_model.ground_truth`` names one in an object."""
    id: str = ""
    """The field with the row's id. Without it that is ``prompt_id``, or a digest of the prompt where there is none."""
    gold: Literal["plain", "hashes", "boxed", "livecodebench"] = "plain"
    """The gold answer in its field: the text, what stands after ####, or what is in the last closed \\boxed{}; of rows
    of LiveCodeBench, the tests of programs."""

    share: Number = Field(1.0, gt=0, le=1)
    """Share of the rows that is taken, chosen by a hash of their ids and in its order; at 1 all of them, in their own
    order."""

    @model_validator(mode="after")
    def _one_source(self) -> "SourceSettings":
        given = [name for name in ("hub", "path", "arithmetic") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"{' and '.join(given) or 'none'} given; allowed: exactly one of hub, path and arithmetic")
        if self.hub is not None and not self.files:
            raise ValueError(f"hub {self.hub!r} without files; allowed: the names of its files")
        of_the_hub = {"revision": self.revision not in ("", "main"), "commit": self.commit, "files": self.files}
        if self.hub is None and (named := [name for name, value in of_the_hub.items() if value]):
            raise ValueError(f"{' and '.join(named)} without hub; allowed: with a data set on the hub")
        if self.commit and not COMMIT.fullmatch(self.commit):
            raise ValueError(f"commit {self.commit!r}; allowed: 40 hexadecimal digits")
        return self

    @property
    def pinned(self) -> str:
        """The commit; empty while it is not known."""
        return self.commit or (self.revision if COMMIT.fullmatch(self.revision) else "")
