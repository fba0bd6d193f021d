"""Hugging Face folders: what a policy must hold, and how its model and tokenizer are loaded."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import transformers.utils.logging
from safetensors import safe_open
from torch import Tensor
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from tasks.errors import DataError
from tasks.policy.files import GENERATION, INDEX, WEIGHTS, read_json, weight_files

transformers.utils.logging.disable_progress_bar()
if not torch.cuda.is_available():
    # Where DeepSpeed is installed transformers loads it, and it warns that it has to guess this.
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
OPTIMIZER = "optimizer"
"""The folder of a policy with the optimizer's state, which only training reads."""
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json")


def check_folder(path: Path, trust_remote_code: bool = False) -> None:
    """Raises DataError unless the folder holds a configuration, safetensors weights and a tokenizer, and no code.

    Args:
        path: the folder.
        trust_remote_code: Python files that come with the model may be used.
    """
    if not (path / "config.json").is_file():
        raise DataError(f"{path}: no config.json, so this is no Hugging Face model folder. Mend policy.path.")
    if not weight_files(path):
        found = sorted(file.name for file in path.iterdir())[:10]
        raise DataError(
            f"{path}: no {WEIGHTS}, nor all files of {INDEX}; found {found}. Pickled weights are refused: save "
            "the model with save_pretrained, which writes safetensors."
        )
    if not any((path / name).is_file() for name in _TOKENIZER_FILES):
        raise DataError(f"{path}: no tokenizer ({', '.join(_TOKENIZER_FILES)}). Save the model's tokenizer there.")
    config = read_json(path / "config.json")
    if "auto_map" in config and config.get("model_type") not in CONFIG_MAPPING and not trust_remote_code:
        raise DataError(
            f"{path}: a {config.get('model_type')} model is defined by Python files that come with it "
            f"({', '.join(sorted(set(config['auto_map'].values())))}). They are not run unless "
            "policy.trust_remote_code: true asks for it."
        )
    if (path / GENERATION).is_file():
        try:
            GenerationConfig.from_dict(read_json(path / GENERATION))
        except ValueError as error:
            raise DataError(f"{path}: transformers cannot load {GENERATION}: {error} Mend or delete it.") from error


def check_vocabulary(path: Path) -> None:
    """Raises DataError when the tokenizer of a folder gives tokens that its model does not know."""
    config = AutoConfig.from_pretrained(path, trust_remote_code=has_code(path))
    known, named = config.get_text_config().vocab_size, len(load_tokenizer(path))
    if named > known:
        raise DataError(
            f"{path}: the tokenizer has {named} tokens and the model's vocabulary {known}. Take the tokenizer that the "
            "model was trained with, or enlarge the model's embeddings (resize_token_embeddings)."
        )


def has_code(path: Path) -> bool:
    """Whether a policy brought Python files: only such as were asked for by name are in its folder."""
    return any(path.glob("*.py"))


def load_tokenizer(path: Path) -> PreTrainedTokenizerBase:
    """The tokenizer of a policy folder."""
    return AutoTokenizer.from_pretrained(path, trust_remote_code=has_code(path))


def device() -> torch.device:
    """Where models are: this process's GPU, or the CPU where there is none."""
    if torch.cuda.is_available():
        return torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
    return torch.device("cpu")


def load_model(
    path: Path, attention: str | None = None, dtype: str = "float32", place: torch.device | str | None = None
) -> PreTrainedModel:
    """The model of a policy folder, in evaluation mode.

    Args:
        path: a checked policy folder.
        attention: an implementation known to transformers; the best that the model has without it.
        dtype: of its weights, float32 or bfloat16.
        place: where it is; ``device()`` without it.

    Raises:
        DataError: weights of the model are not in the folder.
    """
    code = has_code(path)
    if attention is None:
        config = AutoConfig.from_pretrained(path, trust_remote_code=code).get_text_config()
        # The faster implementations leave out such a cap.
        attention = "eager" if getattr(config, "attn_logit_softcapping", None) else None
    model, found = AutoModelForCausalLM.from_pretrained(
        path,
        dtype=getattr(torch, dtype),
        attn_implementation=attention,
        use_safetensors=True,
        trust_remote_code=code,
        output_loading_info=True,
    )
    if missing := sorted(found["missing_keys"]):
        raise DataError(
            f"{path}: {len(missing)} of the model's weights are not in its safetensors, such as {missing[:3]}. "
            "They would be random: save the whole model with save_pretrained."
        )
    return model.eval().to(place or device())


def folder_weights(path: Path) -> Iterator[tuple[str, Tensor]]:
    """The weights in a policy folder, one after the other, on the CPU, as they are stored."""
    for opened, name in _stored(path):
        yield name, opened.get_tensor(name)


def weight_names(path: Path) -> set[str]:
    """The names of the weights in a policy folder."""
    return {name for _, name in _stored(path)}


def _stored(path: Path) -> Iterator[tuple[safe_open, str]]:
    for file in weight_files(path):
        with safe_open(file, framework="pt") as opened:
            for name in opened.keys():  # noqa: SIM118 - no dictionary
                yield opened, name


def stop_token_ids(path: Path) -> list[int]:
    """The tokens that end a response: those of the generation settings, else of the model, else of the tokenizer.

    Raises:
        DataError: none of them names one.
    """
    for name in (GENERATION, "config.json"):
        file = path / name
        found: Any = read_json(file).get("eos_token_id") if file.is_file() else None
        if found is not None:
            return [found] if isinstance(found, int) else list(found)
    token = load_tokenizer(path).eos_token_id
    if token is None:
        raise DataError(f"{path}: neither config.json nor the tokenizer names an eos_token_id. Add one to config.json.")
    return [token]
