"""Training sets that are known by name, and what of a run's prompts determines the rows that it trains on."""

from dataclasses import dataclass
from typing import Any

from pydantic import Field

from tasks.settings.base import Number, Settings
from tasks.settings.benchmarks import DATA_SETS
from tasks.settings.sources import SourceSettings

SHARE_OF_THE_HUB = 0.05
"""Rows of a data set on the hub that may be unusable, where nothing is said."""


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
