"""Finds training prompts that are problems of a benchmark, or share a long run of words with one."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

FEWEST_WORDS = 8
"""A problem with fewer words is compared as a whole alone; GPT-3's decontamination took 8 to 13 (arXiv 2005.14165)."""
_COMMON, _COMMON_SHARE = 3, 0.05
"""Words in a row that more problems of a benchmark have, and a larger share of them."""
_WORD = re.compile(r"\w+")
_SYMBOL = re.compile(r"\w+|[^\w\s]")
_Words = tuple[str, ...]


@dataclass(frozen=True)
class Overlap:
    """The problem of a benchmark that a prompt was found in."""

    benchmark: str
    problem: str
    """The prompt_id of the problem."""
    words: int
    """Words that are shared in a row; 0 where the two are equal."""


class Problems:
    """An index of the problems of benchmarks.

    Args:
        words: shared in a row by a prompt that is found; 0 finds equal ones alone.
    """

    def __init__(self, words: int) -> None:
        self._words = words
        self._whole: dict[_Words, Overlap] = {}
        self._runs: dict[int, dict[_Words, Overlap]] = {}

    def add(self, benchmark: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Add the problems of a benchmark: rows with prompt_id and problem.

        A problem of fewer words is searched for with all of its own, if these are ``FEWEST_WORDS``. Runs that many
        problems share are how the benchmark words them, and are not searched for.
        """
        found: dict[_Words, Overlap] = {}
        times: Counter[_Words] = Counter()
        for row in rows:
            name, text = str(row["prompt_id"]), _plain(row["problem"])
            self._whole.setdefault(_symbols(text), Overlap(benchmark, name, 0))
            words = _WORD.findall(text)
            length = min(self._words, len(words))
            if length >= min(FEWEST_WORDS, self._words) > 0:
                runs = set(_runs(words, length))
                times.update(runs)
                found |= {run: Overlap(benchmark, name, length) for run in runs if run not in found}
        for run, overlap in found.items():
            if times[run] <= max(_COMMON, _COMMON_SHARE * len(rows)):
                self._runs.setdefault(len(run), {}).setdefault(run, overlap)

    def find(self, prompt: str) -> Overlap | None:
        """Return the first problem that a prompt equals, whatever case and spaces, or shares a run of words with."""
        text = _plain(prompt)
        if found := self._whole.get(_symbols(text)):
            return found
        words = _WORD.findall(text)
        for length, runs in sorted(self._runs.items(), reverse=True):
            for run in _runs(words, length):
                if run in runs:
                    return runs[run]
        return None


def _plain(text: str) -> str:
    return unicodedata.normalize("NFKC", text).casefold()


def _symbols(text: str) -> _Words:
    """Return words and signs, which tell 1 + 2 from 1 - 2."""
    return tuple(_SYMBOL.findall(text))


def _runs(words: list[str], length: int) -> Iterator[_Words]:
    return (tuple(words[start : start + length]) for start in range(len(words) - length + 1))
