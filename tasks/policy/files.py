"""The files of a Hugging Face folder, for rooms that load no models."""

import json
from pathlib import Path
from typing import Any

from tasks.errors import DataError

GENERATION = "generation_config.json"
WEIGHTS = "model.safetensors"
INDEX = f"{WEIGHTS}.index.json"
"""Names the files of weights that are in several; nobody reads it beside a file with all of them."""


def read_json(file: Path) -> dict[str, Any]:
    """An object of a JSON file.

    Raises:
        DataError: it holds none.
    """
    try:
        value = json.loads(file.read_text())
    except ValueError as error:
        raise DataError(f"{file}: no JSON ({error}). Save the model with save_pretrained.") from error
    if not isinstance(value, dict):
        raise DataError(f"{file}: no object. Save the model with save_pretrained.")
    return value


def weight_files(path: Path) -> list[Path]:
    """The files with a folder's weights: the only one, else those that its index names; none where one is missing."""
    if (path / WEIGHTS).is_file():
        return [path / WEIGHTS]
    named = read_json(path / INDEX).get("weight_map", {}) if (path / INDEX).is_file() else {}
    files = [path / name for name in sorted(set(named.values()))]
    return files if all(file.is_file() for file in files) else []
