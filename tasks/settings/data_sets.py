"""Settings of data sets: sources of rows, benchmarks and training sets, and the data sets that are known by name."""

import re
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import Field, model_validator

from tasks.settings.base import Day, FilePlace, Number, Settings, Template, read_packaged_yaml
from tasks.settings.verify import VerifyKind

HELD_OUT = "held_out"
"""Name of the benchmark that consists of the held-out prompts of the run."""
SHARE_OF_THE_HUB = 0.05
"""Default of max_unusable_share for a data set on the hub."""
DATA_SETS: dict[str, Any] = read_packaged_yaml(__file__, "data_sets.yaml")
"""Data sets that are known by name, as data_sets.yaml has them."""
_COMMIT = re.compile(r"[0-9a-f]{40}")


class ArithmeticSettings(Settings):
    """Generated arithmetic problems. Training and held-out problems never overlap, whatever the seed."""

    levels: list[Literal[1, 2, 3, 4]] = Field([2], min_length=1)
    """Difficulty: 1 is a+b, 2 is a+b*c, 3 is a*b+c*d, 4 is (a+b)*c-d."""
    held_out_share: Number = Field(0.1, gt=0, lt=1)
    """Share of each level's problems that training never sees, chosen by a hash of the problem; 2+3*4 and 2+4*3 are two
    problems."""
    as_code: bool = False
    """Ask for a program that prints the number (verify.kind code), not for the number in a box."""


class SourceSettings(Settings):
    """Source of rows with a prompt and a gold answer. Give exactly one of hub, path and arithmetic."""

    hub: str | None = None
    """A data set on the Hugging Face hub, as in ``openai/gsm8k``."""
    revision: str = "main"
    """A commit, tag or branch on the hub. Only a commit always names the same rows."""
    commit: str = ""
    """Commit that ``revision`` names. Without it, the commit is looked up when a run starts."""
    files: list[str] = Field([])
    """Files of the data set on the hub, in the order of their rows."""
    path: FilePlace | None = None
    """A JSON-lines, JSON or parquet file of your own, or a folder of such files: a local path or an ``s3://``
    address."""
    arithmetic: ArithmeticSettings | None = None
    """Generated problems; a benchmark gets only those that training never sees."""
    prompt: str = "prompt"
    """The field with the prompt: a text, or a list of messages with role and content, which is used unchanged."""
    answer: str = "answer"
    """The field with the gold answer; a dot leads into an object, as in ``reward_model.ground_truth``."""
    id: str = ""
    """The field with the row's id. When empty, the id is the field ``prompt_id``, or else a digest of the prompt."""
    gold: Literal["plain", "hashes", "boxed", "livecodebench"] = "plain"
    """Position of the gold answer in its field: plain is the whole text, hashes the text after ####, boxed the content
    of the last closed \\boxed{}, and livecodebench the tests of a program, as LiveCodeBench stores them."""

    share: Number = Field(1.0, gt=0, le=1)
    """Share of the rows that is used. Below 1, a hash of their ids chooses and orders the rows; at 1, all rows keep
    their order."""

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
        """The commit of the rows on the hub; empty while it is unknown."""
        return self.commit or (self.revision if _COMMIT.fullmatch(self.revision) else "")


@dataclass(frozen=True)
class Benchmark:
    """A known benchmark."""

    row: dict[str, Any]
    """Fields whose values differ from the defaults of BenchmarkSettings."""
    stated: str
    """Statement of the paper about this benchmark."""
    chosen: str = ""
    """Choices that were made here."""


def _benchmark(stated: str, chosen: str = "", **row: Any) -> Benchmark:
    return Benchmark(row, stated, chosen)


BENCHMARKS = {name: _benchmark(**fields) for name, fields in DATA_SETS["benchmarks"].items()}
"""Known benchmarks by name."""


class BenchmarkSettings(Settings):
    """Problems that policies are evaluated on. A field that is null has the value of ``evaluate`` or ``prompts``.

    The name of a known benchmark (``BENCHMARKS``) is enough; further fields replace those of its row.
    """

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9_.-]*$")
    """Name in tables, figures, trackers and artifacts."""
    source: SourceSettings | None = None
    """Rows of a benchmark of your own. For a known benchmark, it replaces the whole source."""
    answer_type: VerifyKind | None = None
    """Kind of judging; ``verify.kind`` when null."""
    problems: int | None = Field(None, ge=1)
    """Number of problems, from the first row on; when null, all problems, or ``evaluate.problems`` of ``held_out``."""
    samples_per_problem: int | None = Field(None, ge=1)
    """k of avg@k."""
    max_new_tokens: int | None = Field(None, ge=1)
    """Largest length of a response to a problem, in tokens."""
    temperature: Number | None = Field(None, ge=0.01)
    """Sampling temperature on this benchmark."""
    greedy: bool = False
    """Generate one greedy response to every problem, too."""
    template: Template | None = None
    """The text that the policy continues; ``{prompt}`` stands for the problem."""
    chat: bool | None = None
    """Put the text into the tokenizer's chat template as a user's message."""
    date: Day | None = None
    """The date that a chat template writes as today's."""
    max_unreadable_share: Number = Field(0.1, ge=0, le=1)
    """Largest share of gold answers that the verifier cannot read; a larger share is an error. Their problems are
    counted, listed, and treated as not solved."""

    @model_validator(mode="before")
    @classmethod
    def _fill_from_row(cls, values: Any) -> Any:
        if isinstance(values, str):
            values = {"name": values}
        if not isinstance(values, dict) or values.get("name") not in [*BENCHMARKS]:
            return values
        row = BENCHMARKS[values["name"]].row
        if values.get("source"):
            # The row describes its own source: its fields and number of problems do not fit another one.
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

    @property
    def full_name(self) -> str:
        """Name of these settings in messages."""
        return f"evaluate.benchmarks, {self.name}"


@dataclass(frozen=True)
class TrainingSet:
    """A known training set."""

    source: dict[str, Any]
    """Fields of SourceSettings."""
    rows: int | None
    """Number of rows according to the publisher."""
    about: str


TRAINING_SETS = {name: TrainingSet(**fields) for name, fields in DATA_SETS["training_sets"].items()}
"""Known training sets by name."""


class TrainingSetSettings(Settings):
    """Settings that determine the rows of a run's training set, from which every stage takes some."""

    source: SourceSettings
    held_out_share: Number = Field(ge=0, lt=1)
    """Share of the rows that a hash of their ids keeps out of training."""
    overlap_words: int = Field(ge=0)
    max_unusable_share: Number = Field(ge=0, le=1)
