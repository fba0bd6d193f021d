"""A user's own prompts: JSON lines or parquet with prompt and answer, and optionally prompt_id and level."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tasks.errors import DataError


def read_prompts(path: Path, name: str = "") -> list[dict[str, Any]]:
    """Rows with prompt_id, prompt, answer and level (or None), in the file's order.

    ``name`` is what errors call the file, if it was fetched from elsewhere.

    Raises:
        DataError: the file is missing, empty or of another form, or a row lacks a field, has an empty answer or the id
            of an earlier row.
    """
    rows: list[dict[str, Any]] = []
    seen: dict[str, str] = {}
    for place, raw in _raw_rows(path, name or str(path)):
        row = _checked(raw, place)
        if row["prompt_id"] in seen:
            raise DataError(
                f"{place}: prompt_id {row['prompt_id']!r} is also that of {seen[row['prompt_id']]}. "
                "Remove one, or give each its own prompt_id."
            )
        seen[row["prompt_id"]] = place
        rows.append(row)
    if not rows:
        raise DataError(f"{name or path}: no prompts. The file must hold at least one row with prompt and answer.")
    return rows


def _raw_rows(path: Path, name: str) -> Iterator[tuple[str, Any]]:
    if not path.is_file():
        raise DataError(f"{name}: no such file. Name a .jsonl or .parquet file in prompts.path.")
    if path.suffix == ".parquet":
        try:
            table = pq.read_table(path)
        except pa.ArrowException as error:
            raise DataError(f"{name}: not a parquet file ({error}).") from None
        yield from ((f"{name}, row {index}", row) for index, row in enumerate(table.to_pylist()))
    elif path.suffix in (".jsonl", ".json"):
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, start=1):
                if not line.strip():
                    continue
                try:
                    yield f"{name}, line {number}", json.loads(line)
                except json.JSONDecodeError as error:
                    raise DataError(f"{name}, line {number}: not JSON ({error.msg}): {line[:80]!r}") from None
    else:
        raise DataError(f"{name}: cannot read {path.suffix or 'a file without suffix'}; allowed: .jsonl, .parquet.")


def _checked(raw: Any, place: str) -> dict[str, Any]:
    if not isinstance(raw, dict):
        raise DataError(f"{place}: {str(raw)[:80]!r} is not an object with prompt and answer.")
    for field in ("prompt", "answer"):
        value = raw.get(field)
        if value is None:
            raise DataError(f"{place}: no field {field!r}; found {sorted(raw)}.")
        if not str(value).strip():
            raise DataError(f"{place}: {field} is empty. Fill it in or remove the row.")
    prompt, level = str(raw["prompt"]), raw.get("level")
    if level is not None and not isinstance(level, int):
        raise DataError(f"{place}: level {level!r}; allowed: a whole number.")
    identity = raw.get("prompt_id")
    name = str(identity) if identity is not None else hashlib.sha256(prompt.encode()).hexdigest()[:16]
    return {"prompt_id": name, "prompt": prompt, "answer": str(raw["answer"]), "level": level}
