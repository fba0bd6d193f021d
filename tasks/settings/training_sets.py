"""Training sets that are known by name, and what of a run's prompts determines the rows that it trains on."""

from dataclasses import dataclass
from typing import Any

from pydantic import Field

from tasks.settings.base import Number, Settings
from tasks.settings.sources import SourceSettings

SHARE_OF_THE_HUB = 0.05
"""Rows of a data set on the hub that may be unusable, where nothing is said."""


@dataclass(frozen=True)
class TrainingSet:
    """A source, and what is known about it."""

    source: dict[str, Any]
    rows: int | None
    """As those who publish it count them."""
    about: str


TRAINING_SETS: dict[str, TrainingSet] = {
    "math": TrainingSet(
        {
            "hub": "DigitalLearningGmbH/MATH-lighteval",
            "revision": "0530c78699ea5e8eb5530600900e1f328b48acad",
            "files": ["data/train-00000-of-00001.parquet"],
            "prompt": "problem",
            "answer": "solution",
            "gold": "boxed",
        },
        7500,
        "the training part of MATH",
    ),
    "gsm8k": TrainingSet(
        {
            "hub": "openai/gsm8k",
            "revision": "740312add88f781978c0658806c59bc2815b9866",
            "files": ["main/train-00000-of-00001.parquet"],
            "prompt": "question",
            "answer": "answer",
            "gold": "hashes",
        },
        7473,
        "its training part",
    ),
    "deepscaler": TrainingSet(
        {
            "hub": "agentica-org/DeepScaleR-Preview-Dataset",
            "revision": "b6ae8c60f5c1f2b594e2140b91c49c9ad0949e29",
            "files": ["deepscaler.json"],
            "prompt": "problem",
            "answer": "answer",
        },
        None,
        "about 40 thousand problems of AIME, AMC, Omni-MATH and STILL",
    ),
    "dapo": TrainingSet(
        {
            "hub": "open-r1/DAPO-Math-17k-Processed",
            "revision": "31dd309567e3da778038cc87d868b6097a3ccf68",
            "files": ["en/train-00000-of-00001.parquet"],
            "prompt": "prompt",
            "answer": "solution",
        },
        14116,
        "DAPO-Math-17k without repetitions, its English part",
    ),
    "openr1": TrainingSet(
        {
            "hub": "open-r1/OpenR1-Math-220k",
            "revision": "e4e141ec9dea9f8326f4d347be56105859b2bd68",
            "files": [f"data/train-{number:05d}-of-00010.parquet" for number in range(10)],
            "prompt": "problem",
            "answer": "answer",
        },
        93733,
        "Open-R1-Math's default part; 2 GB, of which the solutions are not read",
    ),
}
"""Known training sets. Files, fields and commits are those that public code names; none was fetched here."""


class TrainingSetSettings(Settings):
    """The rows that a run trains on, whatever it takes of them."""

    source: SourceSettings
    held_out_share: Number = Field(ge=0, lt=1)
    """Rows that a hash of their ids keeps from training."""
    overlap_words: int = Field(ge=0)
    max_unusable_share: Number = Field(ge=0, le=1)
