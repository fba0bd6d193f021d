"""Whether a folder holds a policy: what is missing, damaged or of another kind, each with the mend."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import transformers
from transformers import AutoConfig, GenerationConfig
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

from tasks.errors import DataError
from tasks.git_lfs import check_fetched
from tasks.policy.files import GENERATION, INDEX, WEIGHTS, read_json, stored_shapes, weight_files
from tasks.policy.loading import has_code, load_tokenizer

_TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json")


def check_folder(path: Path, trust_remote_code: bool = False) -> None:
    """Raises DataError unless the folder holds a configuration, safetensors weights and a tokenizer, and no code.

    Args:
        path: the folder.
        trust_remote_code: Python files that come with the model may be used.
    """
    if not (path / "config.json").is_file():
        raise DataError(f"{path}: no config.json, so this is no Hugging Face model folder. Mend policy.path.")
    weights = weight_files(path)
    if not weights:
        found = sorted(file.name for file in path.iterdir())[:10]
        raise DataError(
            f"{path}: no {WEIGHTS}, nor all files of {INDEX}; found {found}. Pickled weights are refused: save "
            "the model with save_pretrained, which writes safetensors."
        )
    for file in weights:
        stored_shapes(file)
    tokenizer = [path / name for name in _TOKENIZER_FILES if (path / name).is_file()]
    if not tokenizer:
        raise DataError(f"{path}: no tokenizer ({', '.join(_TOKENIZER_FILES)}). Save the model's tokenizer there.")
    for file in tokenizer:
        check_fetched(file, str(file))
    _check_kind(path, read_json(path / "config.json"), trust_remote_code)
    if (path / GENERATION).is_file():
        try:
            GenerationConfig.from_dict(read_json(path / GENERATION))
        except ValueError as error:
            raise DataError(f"{path}: transformers cannot load {GENERATION}: {error} Mend or delete it.") from error


def _check_kind(path: Path, config: dict[str, Any], trust_remote_code: bool) -> None:
    kind = config.get("model_type")
    code = config.get("auto_map") or {}
    if kind not in CONFIG_MAPPING and not code:
        raise DataError(
            f"{path}: config.json has model_type {kind!r}, which transformers {transformers.__version__} does not "
            "know. Install the version that the model asks for, or take another policy."
        )
    if kind not in CONFIG_MAPPING and not trust_remote_code:
        raise DataError(
            f"{path}: a {kind} model is defined by Python files that come with it "
            f"({', '.join(sorted(set(code.values())))}). They are not run unless policy.trust_remote_code: true asks "
            "for it."
        )
    if quantized := config.get("quantization_config"):
        raise DataError(
            f"{path}: its weights are quantized ({quantized.get('quant_method', 'no method is told')}), and training "
            "needs them whole. Take the model in bfloat16 or float32."
        )


def check_model(path: Path) -> None:
    """Raises DataError unless a folder has a causal language model that knows all tokens of its tokenizer.

    Args:
        path: a checked folder; Python files in it are run.
    """
    config = _loaded(
        path, "config.json", lambda path: AutoConfig.from_pretrained(path, trust_remote_code=has_code(path))
    )
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING and "AutoModelForCausalLM" not in getattr(
        config, "auto_map", {}
    ):
        raise DataError(
            f"{path}: a {config.model_type} model is no causal language model to transformers. Take a policy such as "
            "Qwen or Llama."
        )
    known, named = config.get_text_config().vocab_size, len(_loaded(path, "its tokenizer", load_tokenizer))
    if named > known:
        raise DataError(
            f"{path}: the tokenizer has {named} tokens and the model's vocabulary {known}. Take the tokenizer that the "
            "model was trained with, or enlarge the model's embeddings (resize_token_embeddings)."
        )


def _loaded(path: Path, what: str, load: Callable[[Path], Any]) -> Any:
    try:
        return load(path)
    except Exception as error:  # of whatever kind: the files are a stranger's, and each reader has errors of its own
        why = " ".join(f"{type(error).__name__}: {error}".split())
        raise DataError(
            f"{path}: transformers {transformers.__version__} cannot load {what}: {why.rstrip('.')}. Fetch the "
            "model's files again, or save them with save_pretrained."
        ) from error
