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

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tasks.errors import DataError
from tasks.git_lfs import check_fetched
from tasks.prompts import livecodebench
from tasks.prompts.arithmetic import hash_fraction
from tasks.settings import SourceSettings
from tasks.verify.verdicts import extract

SUFFIXES = (".jsonl", ".json", ".parquet")
_ID, _LEVEL = "prompt_id", "level"
_BATCH = 4096
"""Rows of a parquet file that are Python's at the same time."""
_START = 4096
"""Bytes that are looked at to tell an array from lines."""
_LEVELS = range(-(2**31), 2**31)
_PLAIN_EXPONENTS = range(-7, 21)
"""Powers of ten of numbers that are written without one."""
_NARROW = {pa.float16(): np.float16, pa.float32(): np.float32}
Row = dict[str, Any]
"""prompt_id, prompt, answer, level, which is None where it is not known, and messages, where the prompt is a chat."""
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
            schema = file.schema_arrow
            there = schema.names
            named = [one for one in (source.prompt, source.answer, source.id) if one]
            columns = {one: one if one in there else one.partition(".")[0] for one in (*named, _ID, _LEVEL)}
            wanted = list(dict.fromkeys(one for one in columns.values() if one in there))
            # The names of all columns, for what the error says.
            others = {} if all(columns[one] in there for one in named) else dict.fromkeys(there, "")
            narrow = {one: schema.field(one).type for one in wanted if _is_narrow(schema.field(one).type)}
            number = 0
            for batch in file.iter_batches(_BATCH, columns=wanted):
                for row in batch.to_pylist():
                    shortened = {one: _shortest(row[one], kind) for one, kind in narrow.items()}
                    yield f"{name}, row {number}", others | row | shortened
                    number += 1
    except pa.ArrowException as error:
        raise DataError(f"{name}: not a parquet file ({error}).") from None


def _is_narrow(kind: pa.DataType) -> bool:
    if kind.num_fields:
        return any(_is_narrow(kind.field(place).type) for place in range(kind.num_fields))
    return kind in _NARROW


def _shortest(value: Any, kind: pa.DataType) -> Any:
    """A value with numbers of 32 bits or fewer, as the shortest decimals that are these numbers.

    Arrow gives them as numbers of 64 bits, which have other decimals: 98.5999984741211 in place of 98.6.
    """
    if value is None:
        return None
    if kind in _NARROW:
        return float(str(_NARROW[kind](value)))
    if pa.types.is_struct(kind):
        return {field.name: _shortest(value[field.name], field.type) for field in kind}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return [_shortest(one, kind.value_type) for one in value]
    return value


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
        if _value(raw, named) is not None:
            known["prompt_id"] = _field(raw, named, "source.id")
        chat = _messages(raw, source.prompt)
        prompt = _asked(chat) if chat else _field(raw, source.prompt, "source.prompt")
        text = _field(raw, source.answer, "source.answer", several=True)
        if source.id:
            _field(raw, source.id, "source.id")
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
    messages = json.dumps(chat, ensure_ascii=False) if chat else None
    name = known.get("prompt_id") or hashlib.sha256((messages or prompt).encode()).hexdigest()[:16]
    row = {"prompt_id": name, "prompt": prompt, "answer": answer, "level": level}
    return row | {"messages": messages} if messages else row, ""


def _value(raw: Mapping[str, Any], field: str) -> Any:
    """A field, which may be one of an object that is a field; None where it is missing, or null."""
    if field in raw:
        return raw[field]
    outer, _, inner = field.partition(".")
    if inner and isinstance(raw.get(outer), Mapping):
        return _value(raw[outer], inner)
    return None


def _is_there(raw: Mapping[str, Any], field: str) -> bool:
    outer, _, inner = field.partition(".")
    return field in raw or (bool(inner) and isinstance(raw.get(outer), Mapping) and _is_there(raw[outer], inner))


def _names(raw: Mapping[str, Any]) -> list[str]:
    """The fields of a row, as settings name them."""
    return sorted(
        name
        for field, value in raw.items()
        for name in (
            [f"{field}.{inner}" for inner in _names(value)] if isinstance(value, Mapping) and value else [field]
        )
    )


def _messages(raw: Mapping[str, Any], field: str) -> list[dict[str, str]]:
    """The messages of a chat that a field holds; none where it holds something else.

    Raises:
        ValueError: they are not for a policy to answer; says why.
    """
    value = _value(raw, field)
    if not isinstance(value, list) or not value or not all(isinstance(one, Mapping) for one in value):
        return []
    # Files that have columns give a message every field that another one has.
    messages = [{name: part for name, part in one.items() if part is not None} for one in value]
    for message in messages:
        if not isinstance(message.get("role"), str) or not isinstance(message.get("content"), str):
            raise ValueError(f"{field} has the message {str(message)[:80]!r}; allowed: texts as role and content")
        _encoded(message["content"], field)
    if messages[-1]["role"] == "assistant":
        raise ValueError(f"{field} ends with a message of the assistant. Remove it: that is the policy's to write")
    if not _asked(messages).strip():
        raise ValueError(f"{field} has no message of a user. Fill it in or remove the row")
    return messages


def _asked(messages: Sequence[Mapping[str, str]]) -> str:
    return "\n\n".join(one["content"] for one in messages if one["role"] == "user")


def _field(raw: Mapping[str, Any], field: str, setting: str, several: bool = False) -> str:
    """A field as text, never empty.

    Raises:
        ValueError: it is missing, empty or no text; says which.
    """
    value = _value(raw, field)
    if value is None and _is_there(raw, field):
        raise ValueError(f"{field} is null. Fill it in or remove the row")
    if value is None:
        raise ValueError(f"no field {field!r}; found {_names(raw)}. Name the field that is meant in {setting}")
    try:
        text = _text(value, several)
    except TypeError as error:
        raise ValueError(f"{field} {error}") from None
    if not text.strip():
        raise ValueError(f"{field} is empty. Fill it in or remove the row")
    return _encoded(text, field)


def _encoded(text: str, field: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{field} has half of a surrogate pair: {text[:80]!r}") from None
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
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, float | Decimal) and math.isfinite(value):
        return _decimal(value)
    raise TypeError(f"is {str(value)[:80]!r}; allowed: a text or a number")


def _decimal(value: float | Decimal) -> str:
    """A number as LaTeX has it: 1e-05, as Python has it, is e - 5 there."""
    text = str(value)
    if "e" not in text.lower():
        return text
    exact = Decimal(text)
    power = exact.adjusted()
    if power in _PLAIN_EXPONENTS:
        return f"{exact:f}"
    return rf"{exact.scaleb(-power).normalize():f}\times 10^{{{power}}}"
