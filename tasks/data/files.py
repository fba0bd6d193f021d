"""Read prompts with gold answers from JSON-lines, JSON and parquet files."""

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

from tasks.data import livecodebench
from tasks.data.arithmetic import hash_fraction
from tasks.errors import DataError, check_fetched
from tasks.settings import SourceSettings
from tasks.verify.verdicts import extract

SUFFIXES = (".jsonl", ".json", ".parquet")
_ID, _LEVEL = "prompt_id", "level"
_BATCH = 4096
"""Rows of a parquet file that are converted to Python at once."""
_START = 4096
"""Bytes that are read to tell an array from lines."""
_LEVELS = range(-(2**31), 2**31)
_PLAIN_EXPONENTS = range(-7, 21)
"""Exponents of numbers that are written without one."""
_NARROW = {pa.float16(): np.float16, pa.float32(): np.float32}
Row = dict[str, Any]
"""A row: prompt_id, prompt, answer, level (None if unknown), and messages if the prompt is a chat."""
Named = tuple[Path, str]
"""A file on this machine, and its name for errors."""


@dataclass(frozen=True)
class Unusable:
    """A row without a prompt or a gold answer."""

    place: str
    """File and line, such as ``problems.jsonl, line 3``."""
    prompt_id: str
    """Empty if unknown."""
    reason: str


def read_rows(files: Sequence[Named], source: SourceSettings) -> tuple[list[Row], list[Unusable]]:
    """Return the usable rows of files, in their order, and the unusable ones."""
    rows: list[Row] = []
    unusable: list[Unusable] = []
    seen: dict[str, str] = {}
    for path, name in files:
        for place, raw in _raw_rows(path, name, source):
            row, reason = _parse_row(
                livecodebench.problem(raw, place) if source.gold == "livecodebench" else raw, source
            )
            if not reason and row["prompt_id"] in seen:
                reason = f"prompt_id {row['prompt_id']!r} is also that of {seen[row['prompt_id']]}. Remove or change it"
            if reason:
                unusable.append(Unusable(place, row.get("prompt_id", ""), reason))
            else:
                seen[row["prompt_id"]] = place
                rows.append(row)
    if not rows and not unusable:
        raise DataError(f"{', '.join(name for _, name in files)}: no prompts; allowed: rows with prompt and answer.")
    return share_of(rows, source.share), unusable


def share_of(rows: list[Row], share: float) -> list[Row]:
    """Return a share of the rows, chosen and ordered by the hashes of their ids; at least one of several rows."""
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
    """Yield rows with the needed columns alone, since others may hold gigabytes of solutions."""
    try:
        with pq.ParquetFile(path) as file:
            schema = file.schema_arrow
            named = [one for one in (source.prompt, source.answer, source.id) if one]
            columns = {one: one if one in schema.names else one.partition(".")[0] for one in (*named, _ID, _LEVEL)}
            wanted = [one for one in dict.fromkeys(columns.values()) if one in schema.names]
            # If a column is missing, all columns are given, for the error to name.
            others = {} if all(columns[one] in schema.names for one in named) else dict.fromkeys(schema.names, "")
            batches = file.iter_batches(_BATCH, columns=wanted)
            for number, row in enumerate(row for batch in batches for row in batch.to_pylist()):
                short = {field: _shortest_decimals(value, schema.field(field).type) for field, value in row.items()}
                yield f"{name}, row {number}", others | short
    except pa.ArrowException as error:
        raise DataError(f"{name}: not a parquet file ({error}).") from None


def _shortest_decimals(value: Any, kind: pa.DataType) -> Any:
    """Return a value with 16- and 32-bit floats as shortest decimals: 98.6, where Arrow gives 98.5999984741211."""
    if value is None:
        return None
    if kind in _NARROW:
        return float(str(_NARROW[kind](value)))
    if pa.types.is_struct(kind):
        return {field.name: _shortest_decimals(value[field.name], field.type) for field in kind}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return [_shortest_decimals(one, kind.value_type) for one in value]
    return value


def _json_rows(path: Path, name: str) -> Iterator[tuple[str, Any]]:
    """Yield the values of a file with an array, or with a value in each line."""
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


def _parse_row(raw: Any, source: SourceSettings) -> tuple[Row, str]:
    """Return a row, or its known fields and the reason why it is unusable."""
    if not isinstance(raw, Mapping):
        return {}, f"{str(raw)[:80]!r} is not an object with {source.prompt} and {source.answer}"
    fields, known = _fields(raw), Row()
    try:
        if source.id or fields.get(_ID) is not None:
            known["prompt_id"] = _text_of(fields, source.id or _ID, "source.id")
        chat = _messages(fields.get(source.prompt), source.prompt)
        prompt = _user_texts(chat) if chat else _text_of(fields, source.prompt, "source.prompt")
        text = _text_of(fields, source.answer, "source.answer", several=True)
    except ValueError as error:
        return known, str(error)
    answer, level = _gold(text, source), fields.get(_LEVEL)
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


def _fields(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a row by their names in settings: ``gold.text`` is the field text of the object gold."""
    found: dict[str, Any] = {}
    for name, value in raw.items():
        inner = _fields(value) if isinstance(value, Mapping) else {}
        found |= {f"{name}.{field}": one for field, one in inner.items()} or {name: value}
    return found


def _messages(value: Any, field: str) -> list[dict[str, str]]:
    """Return the messages of a chat; none if the value is no list of messages."""
    if not isinstance(value, list) or not value or not all(isinstance(one, Mapping) for one in value):
        return []
    # In parquet files a message has null fields, which other messages have.
    messages = [{name: part for name, part in one.items() if part is not None} for one in value]
    for message in messages:
        if not isinstance(message.get("role"), str) or not isinstance(message.get("content"), str):
            raise ValueError(f"{field} has the message {str(message)[:80]!r}; allowed: texts as role and content")
        _check_encoding(message["content"], field)
    if messages[-1]["role"] == "assistant":
        raise ValueError(f"{field} ends with a message of the assistant. Remove it: that is the policy's to write")
    if not _user_texts(messages).strip():
        raise ValueError(f"{field} has no message of a user. Fill it in or remove the row")
    return messages


def _user_texts(messages: Sequence[Mapping[str, str]]) -> str:
    return "\n\n".join(one["content"] for one in messages if one["role"] == "user")


def _text_of(fields: Mapping[str, Any], field: str, setting: str, several: bool = False) -> str:
    """Return a field as a text that is not empty, or raise ValueError with the reason."""
    if field not in fields:
        raise ValueError(f"no field {field!r}; found {sorted(fields)}. Name the field that is meant in {setting}")
    if fields[field] is None:
        raise ValueError(f"{field} is null. Fill it in or remove the row")
    text = _text(fields[field], field, several)
    if not text.strip():
        raise ValueError(f"{field} is empty. Fill it in or remove the row")
    _check_encoding(text, field)
    return text


def _check_encoding(text: str, field: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{field} has half of a surrogate pair: {text[:80]!r}") from None


def _gold(text: str, source: SourceSettings) -> str:
    """Return the gold answer in a field, without enclosing dollar signs; empty if there is none."""
    if source.gold == "hashes":
        # 1,234 is one number in such data, but may be two numbers to math-verify.
        text = text.rpartition("####")[2].replace(",", "") if "####" in text else ""
    elif source.gold == "boxed":
        text = extract(text).answer or ""
    elif source.gold == "livecodebench":
        return text
    return text.strip().strip("$").strip()


def _text(value: Any, field: str, several: bool = False) -> str:
    """Return a text or a number as text; with ``several``, a list of answers as one text with commas."""
    if several and isinstance(value, list):
        return ", ".join(_text(one, field).strip().strip("$") for one in value)
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, float | Decimal) and math.isfinite(value):
        return _decimal(value)
    raise ValueError(f"{field} is {str(value)[:80]!r}; allowed: a text or a number")


def _decimal(value: float | Decimal) -> str:
    """Return a number in LaTeX, in which Python's 1e-05 would mean e - 5."""
    text = str(value)
    if "e" not in text.lower():
        return text
    exact = Decimal(text)
    power = exact.adjusted()
    if power in _PLAIN_EXPONENTS:
        return f"{exact:f}"
    return rf"{exact.scaleb(-power).normalize():f}\times 10^{{{power}}}"
