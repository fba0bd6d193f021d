"""Load the model and the tokenizer of a policy folder, and put Liger's kernels into the model."""

import inspect
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import transformers
import transformers.utils.logging
from safetensors import safe_open
from tokenizers import Tokenizer
from torch import Tensor
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
)

from tasks.errors import DataError, SettingsError, check_extra, explain
from tasks.models.files import GENERATION, TOKENIZER_CONFIG, read_json, stored_shapes, weight_files

transformers.utils.logging.disable_progress_bar()
if not torch.cuda.is_available():
    # Where DeepSpeed is installed transformers loads it, and it warns that it has to guess this.
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
FETCH_AGAIN = "Fetch the model's files again, or save them with save_pretrained."
_OUT_OF_MEMORY_FIX = "Take a machine with more memory, or a smaller policy."
OPTIMIZER = "optimizer"
"""Name of the folder in a policy that holds the optimizer's state, which only training reads."""


def has_code(path: Path) -> bool:
    """Return whether a policy folder has Python files; they are copied there only with policy.trust_remote_code."""
    return any(path.glob("*.py"))


def load_tokenizer(path: Path) -> PreTrainedTokenizerBase:
    """Load the tokenizer of a policy folder, with the rules of its tokenizer.json.

    Classes of transformers, such as LlamaTokenizer and GPT2Tokenizer, cut and decode texts by rules of their own, which
    can differ from those of the file, with which the policy was trained. The file also says whether a text begins with
    a token of its own, unless the folder names LlamaTokenizer and tokenizer_config.json says it.

    Raises:
        DataError: transformers cannot load it.
    """
    file = path / "tokenizer.json"
    with explain(cannot_load(path, "its tokenizer"), FETCH_AGAIN):
        tokenizer = AutoTokenizer.from_pretrained(path, trust_remote_code=has_code(path))
        kind = type(tokenizer)
        ruled = issubclass(kind, PreTrainedTokenizerFast) and kind is not PreTrainedTokenizerFast
        if ruled and kind.__module__.startswith("transformers.") and file.is_file():
            rules = Tokenizer.from_file(str(file))
            for part in ("model", "normalizer", "pre_tokenizer", "decoder"):
                setattr(tokenizer.backend_tokenizer, part, getattr(rules, part))
        if (path / TOKENIZER_CONFIG).is_file():
            config = read_json(path / TOKENIZER_CONFIG)
            if "LlamaTokenizer" in str(config.get("tokenizer_class")) and "add_bos_token" in config:
                tokenizer.add_bos_token = config["add_bos_token"]
        return tokenizer


def cannot_load(path: Path, what: str) -> str:
    """Return the first words of messages about something that transformers cannot load."""
    return f"{path}: transformers {transformers.__version__} cannot load {what}"


def device() -> torch.device:
    """Return the device for models: this process's GPU, or the CPU where there is none."""
    if torch.cuda.is_available():
        return torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
    return torch.device("cpu")


@contextmanager
def enough_memory(what: str, fix: str) -> Iterator[None]:
    """Turn torch's out-of-memory errors inside the block into SettingsErrors; ``fix`` says what to change.

    Raises:
        SettingsError: an allocation failed, on a GPU or on the CPU.
    """
    try:
        yield
    except RuntimeError as error:
        if not isinstance(error, torch.OutOfMemoryError) and "can't allocate memory" not in str(error):
            raise
        raise SettingsError(f"{what}: out of memory. {fix} ({str(error).splitlines()[0]})") from error


def load_model(path: Path, dtype: str = "float32", to_device: torch.device | str | None = None) -> PreTrainedModel:
    """Load the model of a checked policy folder, in evaluation mode, with the best attention that it supports.

    The weights have ``dtype``, float32 or bfloat16, and are put on ``to_device``, or else on ``device()``.

    Raises:
        DataError: transformers cannot load the model, or the folder lacks weights or has them in other shapes.
        SettingsError: there is not enough memory for it.
    """
    code = has_code(path)
    config = AutoConfig.from_pretrained(path, trust_remote_code=code).get_text_config()
    with explain(cannot_load(path, "the model"), FETCH_AGAIN), enough_memory("policy", _OUT_OF_MEMORY_FIX):
        model, found = AutoModelForCausalLM.from_pretrained(
            path,
            dtype=getattr(torch, dtype),
            # The faster implementations do not apply this cap.
            attn_implementation="eager" if getattr(config, "attn_logit_softcapping", None) else None,
            use_safetensors=True,
            trust_remote_code=code,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # they are named below
        )
    if other := sorted(found["mismatched_keys"]):
        name, stored, expected = other[0]
        raise DataError(
            f"{path}: {len(other)} weights have other shapes than config.json says, such as {name}: {list(stored)} "
            f"where it says {list(expected)}. Take the config.json that was saved with the weights."
        )
    if missing := sorted(found["missing_keys"]):
        raise DataError(
            f"{path}: {len(missing)} of the model's weights are not in its safetensors, such as {missing[:3]}. "
            "They would be random: save the whole model with save_pretrained."
        )
    with enough_memory("policy", _OUT_OF_MEMORY_FIX):
        return model.eval().to(to_device or device())


def longrope_tokens(config: PretrainedConfig) -> int | None:
    """Return the most tokens of a sequence for which LongRoPE, as in Phi-4-mini, leaves positions as they are.

    For longer sequences it changes the positions of all tokens, in transformers also those of the other sequences of
    the batch, on which the log-probabilities of a response would then depend. None for models without LongRoPE.
    """
    rope = getattr(config, "rope_parameters", None) or {}
    return rope.get("original_max_position_embeddings") if rope.get("rope_type") == "longrope" else None


def folder_weights(path: Path) -> Iterator[tuple[str, Tensor]]:
    """Yield the weights of a policy folder by name, on the CPU, in the dtype in which they are stored."""
    for file in weight_files(path):
        with safe_open(file, framework="pt") as opened:
            for name in opened.keys():  # noqa: SIM118 - no dictionary
                yield name, opened.get_tensor(name)


def weight_names(path: Path) -> set[str]:
    """Return the names of the weights in a policy folder."""
    return {name for file in weight_files(path) for name in stored_shapes(file)}


def stop_token_ids(path: Path) -> list[int]:
    """Return the stop tokens: those of the generation settings, or else of the model's, and the tokenizer's own.

    Raises:
        DataError: none of these files names a stop token, or one of them is not a token id.
    """
    stops: list[int] = []
    for name in (GENERATION, "config.json"):
        file = path / name
        found: Any = read_json(file).get("eos_token_id") if file.is_file() else None
        if found is not None:
            stops = found if isinstance(found, list) else [found]
            if any(type(stop) is not int for stop in stops):
                raise DataError(f"{file}: eos_token_id {found!r}; allowed: the id of a token, or a list of ids.")
            break
    # In a chat a turn ends with the tokenizer's stop token, which generation settings may leave out.
    token = load_tokenizer(path).eos_token_id
    stops = list(dict.fromkeys([*stops, *([] if token is None else [token])]))
    if not stops:
        raise DataError(f"{path}: neither config.json nor the tokenizer names an eos_token_id. Add one to config.json.")
    return stops


def check_liger() -> None:
    """Check that Liger kernels are installed and that there is a GPU.

    Raises:
        SettingsError: one of the two is missing.
    """
    check_extra("liger-kernel", "optimize.backend.liger", ", or set optimize.backend.liger: false")
    if device().type != "cuda":
        raise SettingsError("optimize.backend.liger: there is no GPU here. Set optimize.backend.liger: false.")


def apply_liger(model: PreTrainedModel) -> None:
    """Replace the norms and gated linear units of this model, and of no other, by Liger's.

    Rotary embeddings are kept, because Liger would replace them for every model of the process. So are logits, which
    are never computed whole here.

    Raises:
        SettingsError: Liger has no kernels for models of this type.
    """
    from liger_kernel.transformers.monkey_patch import MODEL_TYPE_TO_APPLY_LIGER_FN as KNOWN

    if model.config.model_type not in KNOWN:
        raise SettingsError(
            f"optimize.backend.liger: has no kernels for a {model.config.model_type} model; allowed: "
            f"{', '.join(sorted(KNOWN))}. Set optimize.backend.liger: false."
        )
    apply = KNOWN[model.config.model_type]
    options = {"rope": False, "cross_entropy": False, "fused_linear_cross_entropy": False}
    # Liger also replaces classes in the model's module, which would change models that are made later.
    module = vars(sys.modules[type(model).__module__])
    before = dict(module)
    apply(model=model, **{name: options[name] for name in options.keys() & inspect.signature(apply).parameters.keys()})
    module.update(before)
