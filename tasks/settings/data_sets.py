"""Data sets: the source of their rows, benchmarks, training sets, and those that are known by name."""

import re
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field, model_validator

from tasks.settings.base import Day, FilePlace, Number, Settings, Template, read_packaged_yaml
from tasks.settings.verify import VerifyKind

HELD_OUT = "held_out"
"""The benchmark that is the held-out part of the run's own prompts."""
SHARE_OF_THE_HUB = 0.05
"""Rows of a data set on the hub that may be unusable, where nothing is said."""
DATA_SETS: dict[str, Any] = read_packaged_yaml(__file__, "data_sets.yaml")
"""Data sets that are known by name."""
_COMMIT = re.compile(r"[0-9a-f]{40}")


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
        self.one_of("hub", "path", "arithmetic")
        if self.hub is not None and not self.files:
            raise ValueError(f"hub {self.hub!r} without files; allowed: the names of its files")
        of_the_hub = {"revision": self.revision not in ("", "main"), "commit": self.commit, "files": self.files}
        if self.hub is None and (named := [name for name, value in of_the_hub.items() if value]):
            raise ValueError(f"{' and '.join(named)} without hub; allowed: with a data set on the hub")
        if self.commit and not _COMMIT.fullmatch(self.commit):
            raise ValueError(f"commit {self.commit!r}; allowed: 40 hexadecimal digits")
        return self

    @property
    def pinned(self) -> str:
        """The commit; empty while it is not known."""
        return self.commit or (self.revision if _COMMIT.fullmatch(self.revision) else "")


@dataclass(frozen=True)
class Benchmark:
    """A row: what differs from BenchmarkSettings' defaults."""

    row: dict[str, Any]
    stated: str
    """Statement of the paper about it."""
    chosen: str = ""
    """Choices that were made here."""


def _benchmark(stated: str, chosen: str = "", **row: Any) -> Benchmark:
    return Benchmark(row, stated, chosen)


BENCHMARKS = {name: _benchmark(**fields) for name, fields in DATA_SETS["benchmarks"].items()}
"""Known benchmarks."""


class BenchmarkSettings(Settings):
    """Problems that policies are evaluated on. What is not given is that of the run's ``evaluate`` and ``prompts``.

    A name of ``BENCHMARKS`` alone stands for its row; fields that are given beside it take the place of the row's.
    """

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9_.-]*$")
    """Name in tables, figures, trackers and artifacts."""
    source: SourceSettings | None = None
    """Rows of a benchmark of your own. A source takes the place of a known benchmark's as a whole."""
    answer_type: VerifyKind | None = None
    """Kind of judging, as in ``verify.kind``; the run's own without it."""
    problems: int | None = Field(None, ge=1)
    """Number of problems, the first ones; all of them without it."""
    samples_per_problem: int | None = Field(None, ge=1)
    """k of avg@k."""
    max_new_tokens: int | None = Field(None, ge=1)
    """Longest response to a problem, in tokens."""
    temperature: Number | None = Field(None, gt=0)
    """Sampling temperature on this benchmark."""
    greedy: bool = False
    """One greedy response to every problem besides."""
    template: Template | None = None
    """The text that the policy continues; ``{prompt}`` stands for the problem."""
    chat: bool | None = None
    """Put the text into the tokenizer's chat template as a user's message."""
    date: Day | None = None
    """The day that a chat template takes for today."""
    max_unreadable_share: Number = Field(0.1, ge=0, le=1)
    """More gold answers that the verifier cannot read are an error. Up to it they are counted and listed, and count as
    not solved."""

    @model_validator(mode="before")
    @classmethod
    def _fill_from_row(cls, values: Any) -> Any:
        if isinstance(values, str):
            values = {"name": values}
        if not isinstance(values, dict) or values.get("name") not in BENCHMARKS:
            return values
        row = BENCHMARKS[values["name"]].row
        if values.get("source"):
            # Of another source neither the fields nor the number of problems are known.
            row = {key: value for key, value in row.items() if key not in ("source", "problems")}
        return cls.merge(row, {key: value for key, value in values.items() if key != "source" or value})

    @model_validator(mode="after")
    def _has_problems(self) -> "BenchmarkSettings":
        if self.source is None and self.name != HELD_OUT:
            raise ValueError(
                f"name {self.name!r} without source: no benchmark is known by this name; known: "
                f"{', '.join(BENCHMARKS)}. Give a source with hub, path or arithmetic"
            )
        return self


@dataclass(frozen=True)
class TrainingSet:
    """A source, and what is known about it."""

    source: dict[str, Any]
    rows: int | None
    """Number of rows as those who publish it count them."""
    about: str


TRAINING_SETS = {name: TrainingSet(**fields) for name, fields in DATA_SETS["training_sets"].items()}
"""Known training sets."""


class TrainingSetSettings(Settings):
    """The rows that a run trains on, whatever it takes of them."""

    source: SourceSettings
    held_out_share: Number = Field(ge=0, lt=1)
    """Rows that a hash of their ids keeps from training."""
    overlap_words: int = Field(ge=0)
    max_unusable_share: Number = Field(ge=0, le=1)
