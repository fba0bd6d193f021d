"""Model folders that lack something, are damaged, or hold another kind of model: refused before anything is stored."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import PreTrainedTokenizerBase

from tasks.errors import DataError
from tasks.models.fitting import fitting_scorer
from tasks.models.loading import load_model, load_tokenizer
from tasks.store import Store
from tests.llama import byte_tokenizer, llama
from tests.models.families import change
from tests.prepared import take_policy

POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 12345\n"
TOKENIZER, CONFIG, GENERATION = "tokenizer.json", "config.json", "generation_config.json"
WEIGHTS, INDEX, NORM = "model.safetensors", "model.safetensors.index.json", "model.norm.weight"
NOT_FINITE = r"1 of the weights hold NaN or infinite numbers, such as model\.norm\.weight\. .* checkpoint"
MORE_TOKENS = "the tokenizer has 23 tokens and the model's vocabulary 22"
Spoil = Callable[[Path], object]


def take(store: Store, folder: Path, chat: bool = False) -> Path:
    return store.path(take_policy(store, folder, chat))


def refused(store: Store, folder: Path, message: str, chat: bool = False) -> None:
    with pytest.raises(DataError, match=message) as refusal:
        take(store, folder, chat)
    assert str(refusal.value).startswith(str(folder))
    assert "\n" not in str(refusal.value)
    assert store.manifests("policy") == []


def spoiler(spoil: Callable[..., object]) -> Callable[..., Spoil]:
    """Make a helper that is called with what to do, and later with the folder to which it is done."""
    return lambda *given, **named: lambda folder: spoil(folder, *given, **named)


@spoiler
def text(folder: Path, name: str, content: str) -> None:
    (folder / name).write_text(content)


@spoiler
def without(folder: Path, name: str) -> None:
    (folder / name).unlink()
    (folder / "pytorch_model.bin").write_bytes(b"pickle")


@spoiler
def config(folder: Path, **changes: Any) -> None:
    change(folder / CONFIG, **changes)


def cut(folder: Path) -> None:
    content = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(content[: len(content) // 2])


@spoiler
def index(folder: Path, content: str) -> None:
    (folder / WEIGHTS).rename(folder.parent / "outside.safetensors")
    (folder / INDEX).write_text(content)


@spoiler
def weight(folder: Path, value: float, dtype: torch.dtype) -> None:
    weights = {name: one.to(dtype) for name, one in load_file(folder / WEIGHTS).items()}
    weights[NORM][3] = value
    save_file(weights, folder / WEIGHTS, {"format": "pt"})


@spoiler
def more_tokens(folder: Path, add: Callable[[PreTrainedTokenizerBase], object]) -> None:
    tokenizer = load_tokenizer(folder)
    add(tokenizer)
    tokenizer.save_pretrained(folder)


@spoiler
def vocabulary(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    tokenizer = json.loads((folder / TOKENIZER).read_text())
    change(tokenizer["model"])
    (folder / TOKENIZER).write_text(json.dumps(tokenizer))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (without(TOKENIZER), "no tokenizer"),
        (without(CONFIG), "no config.json, so this is not a Hugging Face model folder"),
        (without(WEIGHTS), "no model.safetensors, nor all files of .*; found .*Pickled weights are refused"),
        (text(WEIGHTS, POINTER), r"model\.safetensors: a pointer of Git LFS.*git lfs pull"),
        (text(WEIGHTS, ""), r"model\.safetensors is not a complete safetensors file \(.*header too small\)"),
        (cut, r"model\.safetensors is not a complete safetensors file \(.*not fully covered\)\. Fetch"),
        (text(TOKENIZER, POINTER), r"tokenizer\.json: a pointer of Git LFS.*git lfs pull"),
        (text(TOKENIZER, "{}"), r"transformers \S+ cannot load its tokenizer: KeyError: .*Fetch"),
        (text("tokenizer_config.json", "{"), r"transformers \S+ cannot load its tokenizer: JSONDecodeError: "),
        (text(CONFIG, "{"), r"config\.json is not JSON"),
        (text(CONFIG, "[]"), r"config\.json is not a JSON object"),
        (text(CONFIG, "{}"), r"config\.json has model_type None"),
        (text(CONFIG, "[" * 100_000), r"config\.json is not JSON \(maximum recursion"),
        (text(GENERATION, '{"eos_token_id": "<end>"}'), r"generation_config\.json: eos_token_id '<end>'; allowed"),
        (
            text(GENERATION, '{"do_sample": false, "num_return_sequences": 2}'),
            "cannot load generation_config.json: ValueError: Greedy methods .*Correct the file, or delete it",
        ),
        (index('{"weight_map": {"a": "../outside.safetensors"}}'), r"names '\.\./outside\.safetensors', which is not"),
        (index('{"weight_map": {"a": 3}}'), r"no model\.safetensors, nor all files of model\.safetensors\.index\.json"),
        (index('{"weight_map": []}'), r"model\.safetensors\.index\.json: no weight_map. Save the model"),
        (config(model_type="qwen9"), r"model_type 'qwen9', which transformers \S+ does not know\. Install the version"),
        (config(model_type="t5"), "a t5 model is not a causal language model"),
        (config(hidden_size="large"), r"cannot load config\.json: .*'hidden_size' expected int, got str"),
        (config(num_hidden_layers=9), r"cannot load config\.json: .*`num_hidden_layers` \(9\) must be equal"),
        (config(model_type=["qwen3"]), r"cannot load config\.json: TypeError: unhashable type: 'list'\. Fetch"),
        (config(quantization_config="fp8"), r"cannot load config\.json: AttributeError: .* Fetch"),
        (
            config(model_type="mine", auto_map={"AutoTokenizer": ["tokens.Slow", None]}),
            r"a mine model is defined by Python files that come with it \(\['tokens\.Slow', None\]\)\. They",
        ),
        (config(quantization_config={"quant_method": "fp8"}), r"its weights are quantized \(fp8\).* in bfloat16"),
        (weight(math.nan, torch.float32), NOT_FINITE),
        (weight(-math.inf, torch.bfloat16), NOT_FINITE),
        (more_tokens(lambda one: one.add_tokens(["<more>"])), MORE_TOKENS),
        (more_tokens(lambda one: one.add_special_tokens({"eos_token": "<more>"})), MORE_TOKENS),
        (vocabulary(lambda one: one["vocab"].update({"+": 99})), "the tokenizer has 100 tokens and .* vocabulary 22"),
        (
            vocabulary(lambda one: (one["vocab"].pop("1"), one.update(unk_token="<unknown>"))),
            r"the policy's tokenizer cannot take the prompts: Exception: WordLevel error: Missing \[UNK\]",
        ),
    ],
)
def test_a_damaged_folder_is_refused(store: Store, folder: Path, spoil: Spoil, message: str) -> None:
    spoil(folder)
    refused(store, folder, message)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (lambda norm: {"norm": norm}, r"1 of the model's weights are not .*'model\.norm\.weight'"),
        (lambda norm: {NORM: norm[:-1].clone()}, r"1 weights have other shapes .* model\.norm\.weight: \[\d+\] where"),
        # Finite, and their products with hidden states are not.
        (lambda norm: {NORM: 3e38 * norm.sign()}, r"log-probabilities of this qwen3 .* not finite\. .*checkpoint"),
    ],
)
def test_weights_that_no_model_can_be_made_of_are_named(
    store: Store, folder: Path, changed: Callable[[torch.Tensor], dict[str, torch.Tensor]], message: str
) -> None:
    weights = load_file(folder / WEIGHTS)
    norm = weights.pop(NORM)
    save_file(weights | changed(norm), folder / WEIGHTS, {"format": "pt"})
    with pytest.raises(DataError, match=message):
        fitting_scorer(load_model(take(store, folder)), 64)


def test_an_adapter_alone_or_beside_a_model_is_refused(store: Store, folder: Path) -> None:
    (folder / "adapter_config.json").write_text('{"peft_type": "LORA", "base_model_name_or_path": "some/base"}')
    save_file({"lora": torch.zeros(1)}, folder / "adapter_model.safetensors")
    refused(store, folder, r"an adapter of some/base beside model\.safetensors\. .*remove the adapter's weights")
    (folder / WEIGHTS).unlink()
    (folder / "config.json").unlink()  # peft saves none
    refused(store, folder, r"an adapter of some/base and no model\.safetensors\. .*merge_and_unload")


@pytest.mark.parametrize(
    ("template", "message"),
    [
        ("{{ raise_exception('System role required') }}", "TemplateError: System role required. Set prompts.chat"),
        ("{{ raise_exception('\x1b[2J') }}", "TemplateError: \N{SYMBOL FOR ESCAPE}\\[2J\\. Set"),
        ("{{ messages | nothing }}", "TemplateAssertionError: No filter named 'nothing'"),
        ("{% if %}", "the chat template of .* cannot take the prompts: TemplateSyntaxError: Expected an expression"),
        ("{{ messages[1]['content'] }}", "UndefinedError: "),
        ("{{ messages[0]['content'] + 1 }}", "TypeError: can only concatenate str"),
        ("<image>", "the tokenizer has 261 tokens and the model's vocabulary 260"),
    ],
)
def test_a_template_is_tried_for_chats(store: Store, tmp_path: Path, template: str, message: str) -> None:
    tokenizer = byte_tokenizer(template=template)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<image>"]})  # It has no embedding.
    folder = llama(tmp_path / "llama", tokenizer)
    refused(store, folder, message, chat=True)
    take(store, folder)
