"""Benchmarks: sets of problems that policies are evaluated on, and those that are known by name."""

from dataclasses import dataclass
from typing import Any

from pydantic import Field, model_validator

from tasks.settings.base import Day, Number, Settings
from tasks.settings.sources import SourceSettings
from tasks.settings.verify import VerifyKind

HELD_OUT = "held_out"
"""The benchmark that is the held-out part of the run's own prompts."""


@dataclass(frozen=True)
class Benchmark:
    """A row: what differs from BenchmarkSettings' defaults."""

    row: dict[str, Any]
    stated: str
    """What the paper states about it."""
    chosen: str = ""
    """What was chosen here."""


def _benchmark(stated: str, chosen: str = "", **row: Any) -> Benchmark:
    return Benchmark(row, stated, chosen)


_ONE_OF_FIVE = "one of the five of arXiv 2605.17570"
_BESIDES = "not the paper's"
_FIELDS = {"prompt": "problem", "answer": "answer"}
_QUESTION = {"prompt": "question", "answer": "answer"}

BENCHMARKS: dict[str, Benchmark] = {
    HELD_OUT: _benchmark(_BESIDES, "the prompts that the run keeps from training", greedy=True),
    "amc23": _benchmark(
        _ONE_OF_FIVE,
        "the version, 32 samples",
        answer_type="math",
        source={
            "hub": "math-ai/amc23",
            "revision": "80815d37005feb82cd7f8fbc6901d5d3eff43057",
            "files": ["test-00000-of-00001.parquet"],
            **_QUESTION,
        },
        problems=40,
        samples_per_problem=32,
    ),
    "amc24": _benchmark(
        _ONE_OF_FIVE,
        "the version: AMC 12A and 12B without the five problems that need their figure; 32 samples",
        answer_type="math",
        source={
            "hub": "rawsh/2024_AMC12",
            "revision": "47b35303156a75cdfc6fcca694db66905d5b2033",
            "files": ["amc12-2024.jsonl"],
            **_FIELDS,
        },
        problems=45,
        samples_per_problem=32,
    ),
    "aime24": _benchmark(
        _ONE_OF_FIVE,
        "the version, 32 samples",
        answer_type="math",
        source={
            "hub": "math-ai/aime24",
            "revision": "83a7f387baaa524a8bda0022eac0541582297103",
            "files": ["test-00000-of-00001.parquet"],
            "prompt": "problem",
            "answer": "solution",
            "gold": "boxed",
        },
        problems=30,
        samples_per_problem=32,
    ),
    "aime25": _benchmark(
        _ONE_OF_FIVE,
        "the version, 32 samples",
        answer_type="math",
        source={
            "hub": "math-ai/aime25",
            "revision": "563bb8404243c5f09de6ec262f2db674fe5bce9b",
            "files": ["test.jsonl"],
            **_FIELDS,
        },
        problems=30,
        samples_per_problem=32,
    ),
    "math500": _benchmark(
        f"{_ONE_OF_FIVE}, there called MATH",
        "the subset of 500 problems, 4 samples",
        answer_type="math",
        source={
            "hub": "HuggingFaceH4/MATH-500",
            "revision": "6e4ed1a2a79af7d8630a6b768ec859cb5af4d3be",
            "files": ["test.jsonl"],
            "id": "unique_id",
            **_FIELDS,
        },
        problems=500,
        samples_per_problem=4,
    ),
    "gsm8k": _benchmark(
        _BESIDES,
        "4 samples",
        answer_type="math",
        source={
            "hub": "openai/gsm8k",
            "revision": "740312add88f781978c0658806c59bc2815b9866",
            "files": ["main/test-00000-of-00001.parquet"],
            "gold": "hashes",
            **_QUESTION,
        },
        problems=1319,
        samples_per_problem=4,
    ),
    "minerva": _benchmark(
        _BESIDES,
        "4 samples; no commit of it was known here, so it is looked up",
        answer_type="math",
        source={"hub": "math-ai/minervamath", "files": ["test.jsonl"], **_QUESTION},
        problems=272,
        samples_per_problem=4,
    ),
    "olympiadbench": _benchmark(
        _BESIDES,
        "the open-ended English competition problems without figures, 4 samples",
        answer_type="math",
        source={
            "hub": "Hothan/OlympiadBench",
            "revision": "91184b52131e7fc9455fef848035173aea8cc01a",
            "files": ["OlympiadBench/OE_TO_maths_en_COMP/OE_TO_maths_en_COMP.parquet"],
            "prompt": "question",
            "answer": "final_answer",
        },
        problems=674,
        samples_per_problem=4,
    ),
    "livecodebench": _benchmark(
        _BESIDES,
        "all files up to release 6, 4 samples",
        answer_type="code",
        source={
            "hub": "livecodebench/code_generation_lite",
            "revision": "0fe84c3912ea0c4d4a78037083943e8f0c4dd505",
            "files": ["test.jsonl", *(f"test{number}.jsonl" for number in range(2, 7))],
            "prompt": "prompt",
            "answer": "answer",
            "gold": "livecodebench",
        },
        problems=1055,
        samples_per_problem=4,
    ),
}
"""Known benchmarks. Files, fields and commits are those that public code names; none was fetched here."""

PAPER = ("amc23", "amc24", "aime24", "aime25", "math500")
"""The five whose mean is the paper's headline."""


class BenchmarkSettings(Settings):
    """Problems that policies are evaluated on. What is not given is that of the run's ``evaluate`` and ``prompts``.

    A name of ``BENCHMARKS`` alone stands for its row; fields that are given beside it take the place of the row's.
    """

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9_.-]*$")
    """In tables, figures, trackers and artifacts."""
    source: SourceSettings | None = None
    """Of a benchmark of your own; a source takes the place of a known benchmark's as a whole."""
    answer_type: VerifyKind | None = None
    """How responses are judged, as ``verify.kind`` says; the run's own way without it."""
    problems: int | None = Field(None, ge=1)
    """The first so many; all of them without it."""
    samples_per_problem: int | None = Field(None, ge=1)
    """k of avg@k."""
    max_new_tokens: int | None = Field(None, ge=1)
    """Longest response to a problem, in tokens."""
    temperature: Number | None = Field(None, gt=0)
    """Sampling temperature on this benchmark."""
    greedy: bool = False
    """One greedy response to every problem besides."""
    template: str | None = None
    """The text that the policy continues; ``{prompt}`` stands for the problem."""
    chat: bool | None = None
    """Put the text into the tokenizer's chat template as a user's message."""
    date: Day | None = None
    """What a chat template takes for today."""
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
        if self.template is not None and "{prompt}" not in self.template:
            raise ValueError(f"template {self.template!r} must contain {{prompt}}")
        return self
