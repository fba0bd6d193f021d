"""Reader of prompts with gold answers from JSON-lines, JSON and parquet files."""

import hashlib
import json
import math
import re
from codecs import BOM_UTF8
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
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
from tasks.formats import pluralize, shorten
from tasks.process.logs import logger
from tasks.settings import SourceSettings
from tasks.verify.verdicts import extract

SUFFIXES = (".jsonl", ".json", ".parquet")
_ID, _LEVEL = "prompt_id", "level"
_BATCH = 4096
"""Rows of a parquet file that are converted to Python objects at once."""
_START = 4096
"""Bytes at the start of a file that tell a JSON array from JSON lines."""
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_AROUND = re.compile(r"^[\s$]+|(?:\s|(?<!\\)\$)+$")
"""Spaces and dollar signs around a formula; a dollar sign after a backslash belongs to it, as in ``5\\$``."""
_SOLUTIONS = {"boxed": re.compile(r"(?<![\\\w])[A-Za-z]{2,} .*\\boxed\b", re.DOTALL), "hashes": re.compile("####")}
"""Signs of a solution where the answer alone is asked for, by the value of ``source.gold`` that reads it."""
_SENTENCE = re.compile(r"\banswer\s*(?:is|:)", re.IGNORECASE)
_LEVELS = range(-(2**31), 2**31)
_PLAIN_EXPONENTS = range(-7, 21)
"""Decimal exponents of the numbers that are written without an exponent."""
_NARROW_FLOATS = {pa.float16(): np.float16, pa.float32(): np.float32}
Row = dict[str, Any]
"""A row with prompt_id, prompt, answer, level (None if unknown) and, where the prompt is a chat, messages."""
NamedFile = tuple[Path, str]
"""A file on this machine, and its name in errors."""


@dataclass(frozen=True)
class Unusable:
    """A row without a valid prompt or gold answer."""

    place: str
    """File and line, such as ``problems.jsonl, line 3``."""
    prompt_id: str
    """Name of the prompt; empty if unknown."""
    reason: str


def read_rows(files: Sequence[NamedFile], source: SourceSettings, kind: str) -> tuple[list[Row], list[Unusable]]:
    """Return the usable and the unusable rows of files, in their order; those of a share in that of ``share_of``.

    ``kind`` is that of the verifier: around an answer for ``math``, spaces and dollar signs mean nothing, and commas
    join a list of answers; for other kinds the list is JSON.

    Raises:
        DataError: a file cannot be read, or the files have no rows.
    """
    rows: list[Row] = []
    unusable: list[Unusable] = []
    seen: dict[str, str] = {}
    for path, name in files:
        for place, raw in _raw_rows(path, name, source):
            values = livecodebench.read_problem(raw, place) if source.gold == "livecodebench" else raw
            row, reason = _parse_row(values, source, kind)
            if not reason and (earlier := seen.get(row["prompt_id"])):
                if source.id or values.get(_ID) is not None:
                    reason = f"prompt_id {row['prompt_id']!r} is also that of {earlier}. Change one of them"
                else:
                    reason = f"the same prompt as {earlier}. Remove one of them"
            if reason:
                unusable.append(Unusable(place, row.get("prompt_id", ""), reason))
            else:
                seen[row["prompt_id"]] = place
                rows.append(row)
    if not rows and not unusable:
        raise DataError(f"{', '.join(name for _, name in files)}: no prompts; allowed: rows with prompt and answer.")
    if copies := len(rows) - len({row.get("messages") or row["prompt"] for row in rows}):
        logger().warning("%s: %s with the prompt of another row", files[0][1], pluralize(copies, "row"))
    # The hash of its place decides whether a row without an id is in the share.
    in_share = [row for row in unusable if not rows or hash_fraction(row.prompt_id or row.place) < source.share]
    return share_of(rows, source.share), in_share


def share_of(rows: list[Row], share: float) -> list[Row]:
    """Return a share of the rows, sorted by the hash of their ids; at least one row if there are two or more."""
    if share in (0, 1):
        return rows if share else []
    fractions = {row["prompt_id"]: hash_fraction(row["prompt_id"]) for row in rows}
    ordered = sorted(rows, key=lambda row: fractions[row["prompt_id"]])
    selected = [row for row in ordered if fractions[row["prompt_id"]] < share]
    return selected or (ordered[:1] if len(rows) > 1 else [])


def _raw_rows(path: Path, name: str, source: SourceSettings) -> Iterator[tuple[str, Any]]:
    check_fetched(path, name)
    if path.suffix == ".parquet":
        yield from _parquet_rows(path, name, source)
    elif path.suffix in SUFFIXES:
        yield from _json_rows(path, name)
    else:
        raise DataError(
            f"{name}: cannot read {path.suffix or 'a file without suffix'}; allowed: {', '.join(SUFFIXES)}. Unpack or "
            'convert it. For CSV: python -c "import csv, json; [print(json.dumps(row)) for row in '
            "csv.DictReader(open('FILE.csv', newline='', encoding='utf-8-sig'))]\" > FILE.jsonl"
        )


def _parquet_rows(path: Path, name: str, source: SourceSettings) -> Iterator[tuple[str, Any]]:
    """Yield rows with only the columns that are needed: the others can be gigabytes of solutions."""
    try:
        with pq.ParquetFile(path) as file:
            schema = file.schema_arrow
            fields = [field for field in (source.prompt, source.answer, source.id) if field]
            column_of = {
                field: field if field in schema.names else field.partition(".")[0] for field in (*fields, _ID, _LEVEL)
            }
            columns = [column for column in dict.fromkeys(column_of.values()) if column in schema.names]
            if source.gold == "livecodebench":
                columns = schema.names
            # If a column is missing, the row has all columns of the file, so that the error can name them.
            complete = all(column_of[field] in schema.names for field in fields)
            others = {} if complete else dict.fromkeys(schema.names, "")
            batches = file.iter_batches(_BATCH, columns=columns)
            for number, row in enumerate(row for batch in batches for row in batch.to_pylist()):
                short = {field: _shortest_decimals(value, schema.field(field).type) for field, value in row.items()}
                yield f"{name}, row {number}", others | short
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        raise DataError(f"{name}: cannot be read as a parquet file ({error}). Write it again.") from None


def _shortest_decimals(value: Any, kind: pa.DataType) -> Any:
    """Return a value whose 16-bit and 32-bit floats have the shortest decimals: 98.6, not Arrow's 98.5999984741211."""
    if value is None:
        return None
    if kind in _NARROW_FLOATS:
        return float(str(_NARROW_FLOATS[kind](value)))
    if pa.types.is_struct(kind):
        return {field.name: _shortest_decimals(value[field.name], field.type) for field in kind}
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return [_shortest_decimals(item, kind.value_type) for item in value]
    return value


def _json_rows(path: Path, name: str) -> Iterator[tuple[str, Any]]:
    """Yield the values of a JSON array, or of JSON lines."""
    with path.open("rb") as file:
        start = file.read(_START)
        file.seek(len(BOM_UTF8) if start.startswith(BOM_UTF8) else 0)
        if start.removeprefix(BOM_UTF8).lstrip().startswith(b"["):
            values = _parse_json(file.read(), name)
            yield from ((f"{name}, row {number}", value) for number, value in enumerate(values))
            return
        for number, line in enumerate(file, start=1):
            if line.strip():
                yield f"{name}, line {number}", _parse_json(line, f"{name}, line {number}")


def _parse_json(content: bytes, place: str) -> Any:
    try:
        return json.loads(content.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise DataError(f"{place}: not UTF-8 ({error.reason} at byte {error.start}). Save the file as UTF-8.") from None
    except (ValueError, RecursionError) as error:
        start = shorten(content[:400].decode(errors="replace"))
        fix = "Write one JSON object in a line, or one list of objects."
        raise DataError(f"{place}: not JSON ({error}): {start!r}. {fix}") from None


def _parse_row(raw: Any, source: SourceSettings, kind: str) -> tuple[Row, str]:
    """Return a row and an empty text; for an unusable row, its prompt_id if known, and the reason."""
    if not isinstance(raw, Mapping):
        return {}, f"{shorten(str(raw))!r} is not an object with {source.prompt} and {source.answer}"
    fields, partial = _fields(raw), Row()
    try:
        if source.id or fields.get(_ID) is not None:
            partial["prompt_id"] = _text_of(fields, source.id or _ID, source)
        chat = _messages(fields.get(source.prompt), source.prompt)
        messages = json.dumps(chat, ensure_ascii=False, default=str) if chat else None
        prompt = _user_texts(chat) if chat else _text_of(fields, source.prompt, source)
        answers = fields.get(source.answer)
        if answers and isinstance(answers, list) and kind != "math" and source.gold == "plain":
            fields[source.answer] = json.dumps(answers, ensure_ascii=False, default=str)
        text = _text_of(fields, source.answer, source, several=True)
        digest = hashlib.sha256((messages or prompt).encode()).hexdigest()  # ValueError for half of a surrogate pair.
        answer = _gold(text, source, kind)
    except ValueError as error:
        return partial, str(error)
    if not answer:
        return partial, f"{source.answer} holds no answer for source.gold {source.gold}: {shorten(text)!r}"
    name = partial.get("prompt_id") or digest[:16]
    row = {"prompt_id": name, "prompt": prompt, "answer": answer, "level": _level(fields.get(_LEVEL))}
    return row | {"messages": messages} if messages else row, ""


def _level(value: Any) -> int | None:
    """Return a whole number, or the one at the end of a text such as ``Level 5``; None for anything else."""
    if isinstance(value, str) and (found := re.search(r"(?<![0-9.])[0-9]{1,10}$", value)):
        value = int(found[0])
    if isinstance(value, float) and value.is_integer():  # Columns with gaps hold whole numbers as 3.0.
        value = int(value)
    return value if type(value) is int and value in _LEVELS else None


def _fields(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a row by their names in settings: ``gold.text`` is the field text of the object gold."""
    fields: dict[str, Any] = {}
    for name, value in raw.items():
        inner = _fields(value) if isinstance(value, Mapping) else {}
        fields |= {f"{name}.{field}": content for field, content in inner.items()} or {name: value}
    return fields


def _messages(value: Any, field: str) -> list[dict[str, str]]:
    """Return the messages of a chat; an empty list if the value is not a list of messages."""
    if not isinstance(value, list) or not value or not all(isinstance(message, Mapping) for message in value):
        return []
    # Parquet gives every message the fields of all messages, with None where a message has no such field.
    messages = [{name: content for name, content in message.items() if content is not None} for message in value]
    for message in messages:
        if not isinstance(message.get("role"), str) or not isinstance(message.get("content"), str):
            raise ValueError(f"{field} has the message {shorten(str(message))!r}; allowed: texts as role and content")
    if messages[-1]["role"] == "assistant":
        raise ValueError(f"{field} ends with a message of the assistant. Remove it: the policy writes this message")
    if not _user_texts(messages).strip():
        raise ValueError(f"{field} has no message of a user. Fill it in or remove the row")
    return messages


def _user_texts(messages: Sequence[Mapping[str, str]]) -> str:
    return "\n\n".join(message["content"] for message in messages if message["role"] == "user")


def _text_of(fields: Mapping[str, Any], field: str, source: SourceSettings, several: bool = False) -> str:
    """Return a field as text that is not empty, or raise ValueError."""
    if field not in fields:
        is_object = any(name.startswith(f"{field}.") for name in fields)
        problem = f"{field} is an object, not a text (tests of programs are JSON in a text)" if is_object else ""
        found = f"{problem or f'no field {field!r}'}; found {sorted(fields)}"
        raise ValueError(f"{found}. {_how_to_name(fields, field, source)}")
    text = "" if fields[field] is None else _text(fields[field], field, several)
    if not text.strip():
        raise ValueError(f"{field} is empty or null. Fill it in or remove the row")
    text.encode()  # It raises ValueError for half of a surrogate pair.
    return text


def _how_to_name(fields: Mapping[str, Any], field: str, source: SourceSettings) -> str:
    """Return how to name the field that is missing; a file of ``prompts.path`` has no names of fields."""
    names = {key: name for key in ("prompt", "answer", "id") if (name := getattr(source, key))}
    setting = next((key for key, name in names.items() if name == field), "id")
    if source.path is None or (source.prompt, source.answer) != ("prompt", "answer"):
        return f"Name one of these in source.{setting}"
    written = ", ".join(f"{key}: {name if name in fields else 'FIELD'}" for key, name in names.items())
    return (
        f"Name one of these in source.{setting}, or, in place of prompts.path, set "
        f"prompts.source='{{path: {source.path}, {written}}}' with your names for FIELD"
    )


def _gold(text: str, source: SourceSettings, kind: str) -> str:
    """Return the gold answer in the text of a field; empty if there is none.

    Raises ValueError for a whole solution or a sentence, to which no right answer would be equal.
    """
    if source.gold == "hashes":
        # 1,234 is one number in GSM8K, but math-verify reads it as two numbers. Other commas separate items.
        text = _THOUSANDS.sub("", text.rpartition("####")[2]) if "####" in text else ""
    elif source.gold == "boxed":
        text = extract(text).answer or ""
    elif source.gold == "livecodebench" or kind != "math":
        return text
    elif form := next((form for form, sign in _SOLUTIONS.items() if sign.search(text)), None):
        raise ValueError(
            f"{source.answer} is a whole solution: {shorten(text)!r}. Set source.gold to {form}, or, in place of "
            f"prompts.path, set prompts.source='{{path: {source.path}, gold: {form}}}'"
        )
    elif _SENTENCE.search(text):
        raise ValueError(f"{source.answer} is a sentence: {shorten(text)!r}. Give the answer alone, as in '7'")
    elif text.lstrip().startswith('["'):  # Skywork-OR1 has lists of answers as JSON.
        with suppress(ValueError, RecursionError):
            text = _text(json.loads(text), source.answer, several=True)
    return _AROUND.sub("", text)


def _text(value: Any, field: str, several: bool = False) -> str:
    """Return a text or a number as a text; with ``several``, also a list of answers, joined by commas."""
    if several and isinstance(value, list):
        return ", ".join(_AROUND.sub("", _text(answer, field)) for answer in value)
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, float | Decimal) and math.isfinite(value):
        return _decimal(value)
    raise ValueError(f"{field} is {shorten(str(value))!r}; allowed: a text or a number")


def _decimal(value: float | Decimal) -> str:
    """Return a number in LaTeX: Python's 1e-05 would be read as 1 times e, minus 5."""
    text = str(value)
    if "e" not in text.lower():
        return text
    exact = Decimal(text)
    power = exact.adjusted()
    if power in _PLAIN_EXPONENTS:
        return f"{exact:f}"
    return rf"{exact.scaleb(-power).normalize():f}\times 10^{{{power}}}"
