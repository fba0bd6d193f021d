"""Check that a folder holds a policy that can be trained; errors name what is wrong and how to fix it."""

from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoConfig, GenerationConfig
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

from tasks.errors import DataError, check_fetched, explain
from tasks.models.files import (
    ADAPTER_CONFIG,
    GENERATION,
    INDEX,
    WEIGHTS,
    named_weight_files,
    read_json,
    stored_shapes,
    weight_files,
)
from tasks.models.loading import FETCH_AGAIN, cannot_load, folder_weights, has_code, load_tokenizer, stop_token_ids
from tasks.models.prompts import token_ids

_TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json")


def check_folder(path: Path, trust_remote_code: bool = False) -> None:
    """Check the files of a policy folder: configuration, safetensors weights, tokenizer, and no code without trust.

    Raises:
        DataError: a file is missing, damaged, or of a kind that is not supported.
    """
    weights = weight_files(path)
    _check_adapter(path, bool(weights))
    if not (path / "config.json").is_file():
        raise DataError(f"{path}: no config.json, so this is not a Hugging Face model folder. Correct policy.path.")
    if not weights:
        found = sorted(file.name for file in path.iterdir())[:10]
        missing = [file.name for file in named_weight_files(path) if not file.is_file()][:10]
        raise DataError(
            f"{path}: no {WEIGHTS}, nor all files of {INDEX}; found {found}{f', not {missing}' if missing else ''}. "
            "Pickled weights are refused: save the model with save_pretrained, which writes safetensors."
        )
    for file in weights:
        stored_shapes(file)
    tokenizer = [path / name for name in _TOKENIZER_FILES if (path / name).is_file()]
    if not tokenizer:
        raise DataError(f"{path}: no tokenizer ({', '.join(_TOKENIZER_FILES)}). Save the model's tokenizer there.")
    for file in tokenizer:
        check_fetched(file, str(file))
    config = read_json(path / "config.json")
    with explain(cannot_load(path, "config.json"), FETCH_AGAIN):
        _check_kind(path, config, trust_remote_code)
    if (path / GENERATION).is_file():
        settings = read_json(path / GENERATION)
        with explain(cannot_load(path, GENERATION), "Correct the file, or delete it."):
            GenerationConfig.from_dict(settings)


def _check_adapter(path: Path, whole: bool) -> None:
    """Refuse a folder with the weights of a LoRA adapter, beside a whole model or in its place."""
    config = path / ADAPTER_CONFIG
    if any(path.glob("adapter_model.*")) or (config.is_file() and not whole):
        base = read_json(config).get("base_model_name_or_path") if config.is_file() else None
        raise DataError(
            f"{path}: holds an adapter of {base or 'some model'} {'beside' if whole else 'and no'} {WEIGHTS}. Unless "
            "it is merged, merge it into its model with peft (merge_and_unload) and save that with save_pretrained; "
            "then remove the adapter's weights."
        )


def _check_kind(path: Path, config: dict[str, Any], trust_remote_code: bool) -> None:
    kind = config.get("model_type")
    code = config.get("auto_map") or {}
    if kind not in CONFIG_MAPPING and not code:
        raise DataError(
            f"{path}: config.json has model_type {kind!r}, which transformers {transformers.__version__} does not "
            "know. Install the version that the model asks for, or take another policy."
        )
    if kind not in CONFIG_MAPPING and not trust_remote_code:
        files = ", ".join(sorted({str(name) for name in code.values()}))
        raise DataError(
            f"{path}: a {kind} model is defined by Python files that come with it ({files}). They are not run unless "
            "policy.trust_remote_code: true asks for it."
        )
    if quantized := config.get("quantization_config"):
        raise DataError(
            f"{path}: its weights are quantized ({quantized.get('quant_method', 'unknown method')}), and training "
            "needs them whole. Take the model in bfloat16 or float32."
        )


def check_model(path: Path, chat: bool) -> None:
    """Check that a folder has a causal language model and a tokenizer that takes prompts; its code is run.

    Raises:
        DataError: the folder has no such model or tokenizer, or with ``chat`` the tokenizer has no chat template.
    """
    with explain(cannot_load(path, "config.json"), FETCH_AGAIN):
        config = AutoConfig.from_pretrained(path, trust_remote_code=has_code(path))
        vocabulary = config.get_text_config().vocab_size
    own_code = getattr(config, "auto_map", None) or {}
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING and "AutoModelForCausalLM" not in own_code:
        raise DataError(
            f"{path}: a {config.model_type} model is not a causal language model in transformers. Take one that is, "
            "such as a Qwen or Llama model."
        )
    tokenizer = load_tokenizer(path)
    stop_token_ids(path)
    used = {tokenizer.eos_token_id} - {None}
    for is_chat in (False, True)[: 1 + chat]:
        try:
            used.update(*token_ids(tokenizer, [{"prompt": "1+1=", "chat": is_chat, "date": "26 Jul 2024"}]))
        except DataError as error:
            raise DataError(f"{path}: {error.message}") from error
    with explain(cannot_load(path, "its tokenizer"), FETCH_AGAIN):
        # Other special tokens may have no embedding, as that for images in the text models of Gemma 3.
        special = {token for token, added in tokenizer.added_tokens_decoder.items() if added.special}
        tokens = max(({*tokenizer.get_vocab().values()} - special) | used, default=-1) + 1
    if tokens > vocabulary:
        raise DataError(
            f"{path}: the tokenizer has {tokens} tokens and the model's vocabulary {vocabulary}. Take the tokenizer "
            "that the model was trained with, or enlarge the model's embeddings (resize_token_embeddings)."
        )
    _check_finite(path)


def _check_finite(path: Path) -> None:
    """Refuse weights that hold NaN or infinite numbers: every probability would be NaN."""
    bad = [name for name, weight in folder_weights(path) if not bool(torch.isfinite(weight).all())]
    if bad:
        raise DataError(
            f"{path}: {len(bad)} of the weights hold NaN or infinite numbers, such as {bad[0]}. The training that made "
            "them diverged, or the file is damaged: take an earlier checkpoint, or fetch the model's files again."
        )
