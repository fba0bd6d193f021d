"""Rows of JSON-lines, JSON and parquet files become prompts with gold answers."""

import hashlib
import json
import math
from codecs import BOM_UTF8
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tasks.errors import DataError
from tasks.git_lfs import check_fetched
from tasks.prompts import livecodebench
from tasks.prompts.arithmetic import hash_fraction
from tasks.settings import SourceSettings
from tasks.verify.answers import extract

SUFFIXES = (".jsonl", ".json", ".parquet")
_ID, _LEVEL = "prompt_id", "level"
_BATCH = 4096
"""Rows of a parquet file that are Python's at the same time."""
_START = 4096
"""Bytes that are looked at to tell an array from lines."""
_LEVELS = range(-(2**31), 2**31)
Row = dict[str, Any]
"""prompt_id, prompt, answer and level, which is None where it is not known."""
Named = tuple[Path, str]
"""A file on this machine, and what errors call it."""


@dataclass(frozen=True)
class Unusable:
    """A row that is no prompt with a gold answer."""

    place: str
    """As in ``problems.jsonl, line 3``."""
    prompt_id: str
    """Empty where it is not known."""
    reason: str


def read_rows(files: Sequence[Named], source: SourceSettings) -> tuple[list[Row], list[Unusable]]:
    """The rows of files, in their order, and those that cannot be used.

    Raises:
        DataError: a file is missing or of another form, or there is no row at all.
    """
    rows: list[Row] = []
    unusable: list[Unusable] = []
    seen: dict[str, str] = {}
    for path, name in files:
        for place, raw in _raw_rows(path, name, source):
            row, reason = _row(livecodebench.problem(raw, place) if source.gold == "livecodebench" else raw, source)
            if not reason and row["prompt_id"] in seen:
                reason = (
                    f"prompt_id {row['prompt_id']!r} is also that of {seen[row['prompt_id']]}. Remove one, or give "
                    "each its own prompt_id"
                )
            if reason:
                unusable.append(Unusable(place, row.get("prompt_id", ""), reason))
                continue
            seen[row["prompt_id"]] = place
            rows.append(row)
    if not rows and not unusable:
        raise DataError(f"{', '.join(name for _, name in files)}: no prompts; allowed: rows with prompt and answer.")
    return share_of(rows, source.share), unusable


def share_of(rows: list[Row], share: float) -> list[Row]:
    """So large a share of the rows, in the order of the hash of their ids; at least one of several rows."""
    if share in (0, 1):
        return rows if share else []
    fractions = {row["prompt_id"]: hash_fraction(row["prompt_id"]) for row in rows}
    ordered = sorted(rows, key=lambda row: fractions[row["prompt_id"]])
    taken = [row for row in ordered if fractions[row["prompt_id"]] < share]
    return taken or (ordered[:1] if len(rows) > 1 else [])


def _raw_rows(path: Path, name: str, source: SourceSettings) -> Iterator[tuple[str, Any]]:
    if not path.is_file():
        raise DataError(f"{name}: no such file. Name a .jsonl, .json or .parquet file.")
    check_fetched(path, name)
    if path.suffix == ".parquet":
        yield from _parquet_rows(path, name, source)
    elif path.suffix in SUFFIXES:
        yield from _json_rows(path, name)
    else:
        raise DataError(
            f"{name}: cannot read {path.suffix or 'a file without suffix'}; allowed: {', '.join(SUFFIXES)}."
        )


def _parquet_rows(path: Path, name: str, source: SourceSettings) -> Iterator[tuple[str, Any]]:
    """Of the columns that count alone: others can be gigabytes of solutions."""
    try:
        with pq.ParquetFile(path) as file:
            there = file.schema_arrow.names
            wanted = [one for one in (source.prompt, source.answer, source.id, _ID, _LEVEL) if one in there]
            missing = [one for one in (source.prompt, source.answer, source.id) if one and one not in there]
            number = 0
            for batch in file.iter_batches(_BATCH, columns=list(dict.fromkeys(wanted))):
                for row in batch.to_pylist():
                    # The names of all columns, for what the error says.
                    yield f"{name}, row {number}", dict.fromkeys(there) | row if missing else row
                    number += 1
    except pa.ArrowException as error:
        raise DataError(f"{name}: not a parquet file ({error}).") from None


def _json_rows(path: Path, name: str) -> Iterator[tuple[str, Any]]:
    """A file with one array, or a value in every line."""
    with path.open("rb") as file:
        start = file.read(_START).removeprefix(BOM_UTF8).lstrip()[:1]
        file.seek(0)
        if start == b"[" and path.suffix == ".json":
            values = _parsed(file.read(), name)
            yield from ((f"{name}, row {number}", value) for number, value in enumerate(values))
            return
        for number, line in enumerate(file, start=1):
            text = line.removeprefix(BOM_UTF8) if number == 1 else line
            if text.strip():
                yield f"{name}, line {number}", _parsed(text, f"{name}, line {number}")


def _parsed(content: bytes, place: str) -> Any:
    try:
        return json.loads(content.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise DataError(f"{place}: not UTF-8 ({error.reason} at byte {error.start}). Save the file as UTF-8.") from None
    except json.JSONDecodeError as error:
        where = f" at line {error.lineno}" if error.lineno > 1 else ""
        raise DataError(f"{place}: not JSON ({error.msg}{where}): {error.doc[:80]!r}") from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"{place}: not to be read ({error}): {content[:80]!r}") from None


def _row(raw: Any, source: SourceSettings) -> tuple[Row, str]:
    """A row, or as much of it as is known and why it cannot be used."""
    if not isinstance(raw, Mapping):
        return {}, f"{str(raw)[:80]!r} is not an object with {source.prompt} and {source.answer}"
    named = source.id or _ID
    known: Row = {}
    try:
        if raw.get(named) is not None:
            known["prompt_id"] = _field(raw, named)
        prompt, text = _field(raw, source.prompt), _field(raw, source.answer, several=True)
        if source.id:
            _field(raw, source.id)
    except ValueError as error:
        return known, str(error)
    answer, level = gold(text, source), raw.get(_LEVEL)
    if not answer:
        sign = {"hashes": "####", "boxed": "a closed \\boxed{}"}.get(source.gold, "anything but dollar signs")
        return known, f"{source.answer} holds no answer: there is no {sign}, or nothing after or in it"
    if level is not None and (type(level) is not int or level not in _LEVELS):
        if source.hub is None:
            return known, f"level {level!r}; allowed: a whole number of 32 bits"
        level = None
    name = known.get("prompt_id") or hashlib.sha256(prompt.encode()).hexdigest()[:16]
    return {"prompt_id": name, "prompt": prompt, "answer": answer, "level": level}, ""


def _field(raw: Mapping[str, Any], field: str, several: bool = False) -> str:
    """A field as text, never empty.

    Raises:
        ValueError: it is missing, empty or no text; says which.
    """
    value = raw.get(field)
    if value is None:
        raise ValueError(f"no field {field!r}; found {sorted(raw)}")
    try:
        text = _text(value, several)
    except TypeError as error:
        raise ValueError(f"{field} {error}") from None
    if not text.strip():
        raise ValueError(f"{field} is empty. Fill it in or remove the row")
    return text


def gold(text: str, source: SourceSettings) -> str:
    """The gold answer in the text of its field, without dollar signs around it; empty when it holds none."""
    if source.gold == "hashes":
        # 1,234 is a number there, and a pair of numbers to math-verify in a list.
        text = text.rpartition("####")[2].replace(",", "") if "####" in text else ""
    elif source.gold == "boxed":
        text = extract(text).answer or ""
    elif source.gold == "livecodebench":
        return text
    return text.strip().strip("$").strip()


def _text(value: Any, several: bool = False) -> str:
    """A text or number as text; of several answers of one problem, where they are allowed, one list.

    Raises:
        TypeError: it is something else; says what.
    """
    if several and isinstance(value, list):
        return ", ".join(_text(one).strip().strip("$") for one in value)
    whole = isinstance(value, int) and not isinstance(value, bool)
    number = whole or (isinstance(value, float | Decimal) and math.isfinite(value))
    if not number and not isinstance(value, str):
        chat = "; set prompts.chat for a model's chat template" if isinstance(value, list) else ""
        raise TypeError(f"is {str(value)[:80]!r}; allowed: a text or a number{chat}")
    try:
        str(value).encode()
    except UnicodeEncodeError:
        raise TypeError(f"has half of a surrogate pair: {value[:80]!r}") from None
    return str(value)
