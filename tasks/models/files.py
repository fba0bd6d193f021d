"""Read the files of a Hugging Face folder without loading a model."""

import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from tasks.errors import DataError, check_fetched

ADAPTER_CONFIG = "adapter_config.json"
"""A merged model may still have this file, which makes transformers look for an adapter's weights."""
GENERATION = "generation_config.json"
TOKENIZER_CONFIG = "tokenizer_config.json"
WEIGHTS = "model.safetensors"
INDEX = f"{WEIGHTS}.index.json"
"""Names the files of weights that are split; it is not read where one file holds all of them."""


def read_json(file: Path) -> dict[str, Any]:
    """Read the object of a JSON file.

    Raises:
        DataError: the file holds no JSON object.
    """
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"policy.path: {file} cannot be read: {error.strerror}. Name the folder of a model.") from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"{file} is not JSON ({error}). Save the model with save_pretrained.") from error
    if not isinstance(value, dict):
        raise DataError(f"{file} is not a JSON object. Save the model with save_pretrained.")
    return value


def weight_files(path: Path) -> list[Path]:
    """Return the files with a folder's weights, one or those of an index; none where a file is missing.

    Raises:
        DataError: the index names something that is not a file of the folder.
    """
    files = named_weight_files(path)
    return files if all(file.is_file() for file in files) else []


def named_weight_files(path: Path) -> list[Path]:
    """Return the files that ``weight_files`` looks for, of which some may be missing."""
    if (path / WEIGHTS).is_file():
        return [path / WEIGHTS]
    index = path / INDEX
    if not index.is_file():
        return []
    named = read_json(index).get("weight_map")
    if not isinstance(named, dict):
        raise DataError(f"{index}: no weight_map. Save the model with save_pretrained.")
    names = sorted(set(map(str, named.values())))
    if outside := [name for name in names if Path(name).name != name]:
        raise DataError(
            f"{index}: its weight_map names {outside[0]!r}, which is not a file of that folder. Save the model with "
            "save_pretrained."
        )
    return [path / name for name in names]


def stored_shapes(file: Path) -> dict[str, list[int]]:
    """Return the shapes of the tensors in a file of weights, by name; only the header is read.

    Raises:
        DataError: the file is not safetensors, or is truncated.
    """
    check_fetched(file, str(file))
    try:
        with safe_open(file, framework="numpy") as opened:
            return {name: opened.get_slice(name).get_shape() for name in opened.keys()}  # noqa: SIM118 - no dictionary
    except SafetensorError as error:
        raise DataError(f"{file} is not a complete safetensors file ({error}). Fetch or save it again.") from None
