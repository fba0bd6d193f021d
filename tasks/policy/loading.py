"""Hugging Face folders: what a policy must hold, and how its model and tokenizer are loaded."""

import json
import os
from pathlib import Path
from typing import Any

import torch
import transformers.utils.logging
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from tasks.errors import DataError

transformers.utils.logging.disable_progress_bar()
OPTIMIZER = "optimizer"
"""The folder of a policy with the optimizer's state, which only training reads."""
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json")


def check_folder(path: Path) -> None:
    """Raises DataError unless the folder holds a configuration, safetensors weights and a tokenizer."""
    if not (path / "config.json").is_file():
        raise DataError(f"{path}: no config.json, so this is no Hugging Face model folder. Mend policy.path.")
    if not any(path.glob("*.safetensors")):
        found = sorted(file.name for file in path.iterdir())[:10]
        raise DataError(
            f"{path}: no *.safetensors; found {found}. Pickled weights are refused: save the model with "
            "save_pretrained, which writes safetensors."
        )
    if not any((path / name).is_file() for name in _TOKENIZER_FILES):
        raise DataError(f"{path}: no tokenizer ({', '.join(_TOKENIZER_FILES)}). Save the model's tokenizer there.")


def load_tokenizer(path: Path) -> PreTrainedTokenizerBase:
    """The tokenizer of a policy folder."""
    return AutoTokenizer.from_pretrained(path)


def device() -> torch.device:
    """Where models are: this process's GPU, or the CPU where there is none."""
    if torch.cuda.is_available():
        return torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
    return torch.device("cpu")


def load_model(path: Path, attention: str = "sdpa", dtype: str = "float32") -> PreTrainedModel:
    """The model of a policy folder, in evaluation mode, on ``device()``.

    Args:
        path: a checked policy folder.
        attention: the name of an attention implementation known to transformers.
        dtype: of its weights, float32 or bfloat16.
    """
    model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
        path, dtype=getattr(torch, dtype), attn_implementation=attention, use_safetensors=True
    )
    return model.eval().to(device())


def stop_token_ids(path: Path) -> list[int]:
    """The tokens that end a response: those of the generation settings, else of the model, else of the tokenizer.

    Raises:
        DataError: none of them names one.
    """
    for name in ("generation_config.json", "config.json"):
        file = path / name
        found: Any = json.loads(file.read_text()).get("eos_token_id") if file.is_file() else None
        if found is not None:
            return [found] if isinstance(found, int) else list(found)
    token = load_tokenizer(path).eos_token_id
    if token is None:
        raise DataError(f"{path}: neither config.json nor the tokenizer names an eos_token_id. Add one to config.json.")
    return [token]
