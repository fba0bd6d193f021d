"""Model folders that lack something, are damaged, or hold another kind of model: refused before anything is stored."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

from tasks.artifacts import Store
from tasks.errors import DataError
from tasks.policy.loading import load_model, load_tokenizer
from tasks.policy.step import prepare_policy
from tasks.settings import ArithmeticSettings, PolicySettings

POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 12345\n"
WEIGHTS, INDEX = "model.safetensors", "model.safetensors.index.json"
Spoil = Callable[[Path], None]


def take(store: Store, folder: Path) -> Path:
    policy = prepare_policy(store, PolicySettings(path=str(folder)), ArithmeticSettings(), "", 0)
    return store.path(policy)


def refused(store: Store, folder: Path, message: str) -> None:
    with pytest.raises(DataError, match=message) as refusal:
        take(store, folder)
    assert str(refusal.value).startswith(str(folder))
    assert store.manifests("policy") == []


def config(**changes: Any) -> Spoil:
    def spoil(folder: Path) -> None:
        values = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(values | changes))

    return spoil


def cut(folder: Path) -> None:
    content = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(content[: len(content) // 2])


def indexed(*names: object) -> Spoil:
    def spoil(folder: Path) -> None:
        (folder / WEIGHTS).rename(folder.parent / "outside.safetensors")
        (folder / INDEX).write_text(json.dumps({"weight_map": dict(enumerate(names))}))

    return spoil


@pytest.mark.parametrize(
    ("lost", "message"),
    [
        ("tokenizer.json", "no tokenizer"),
        ("config.json", "no config.json, so this is no Hugging Face model folder"),
        ("model.safetensors", "no model.safetensors, nor all files of .*; found .*Pickled weights are refused"),
    ],
)
def test_an_incomplete_folder_is_refused(store: Store, folder: Path, lost: str, message: str) -> None:
    (folder / lost).unlink()
    (folder / "pytorch_model.bin").write_bytes(b"pickle")
    refused(store, folder, message)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (WEIGHTS, POINTER, r"model\.safetensors: a pointer of Git LFS.*git lfs pull"),
        (WEIGHTS, "", r"model\.safetensors: no whole file of safetensors \(.*header too small\)"),
        ("tokenizer.json", POINTER, r"tokenizer\.json: a pointer of Git LFS.*git lfs pull"),
        ("tokenizer.json", "", r"transformers \S+ cannot load its tokenizer: JSONDecodeError: .*Fetch"),
        ("tokenizer.json", "{}", r"transformers \S+ cannot load its tokenizer: KeyError: "),
        ("tokenizer_config.json", "{", r"transformers \S+ cannot load its tokenizer: JSONDecodeError: "),
        ("config.json", "{", r"config\.json: no JSON"),
        ("config.json", "[]", r"config\.json: no object"),
        ("config.json", "{}", r"config\.json has model_type None"),
        ("generation_config.json", "[1]", r"generation_config\.json: no object"),
        (
            "generation_config.json",
            '{"do_sample": false, "num_return_sequences": 2}',
            "cannot load generation_config.json: Greedy methods .*Mend or delete it",
        ),
    ],
)
def test_a_file_that_cannot_be_read_is_named(store: Store, folder: Path, name: str, text: str, message: str) -> None:
    (folder / name).write_text(text)
    refused(store, folder, message)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (cut, r"model\.safetensors: no whole file of safetensors \(.*not fully covered\)\. Fetch"),
        (indexed("../outside.safetensors"), r"names '\.\./outside\.safetensors', which is no file of that folder"),
        (indexed(3), r"no model\.safetensors, nor all files of model\.safetensors\.index\.json"),
        (config(model_type="qwen9"), r"model_type 'qwen9', which transformers \S+ does not know\. Install the version"),
        (config(model_type="t5"), "a t5 model is no causal language model"),
        (config(hidden_size="large"), r"cannot load config\.json: .*'hidden_size' expected int, got str"),
        (config(num_hidden_layers=9), r"cannot load config\.json: .*`num_hidden_layers` \(9\) must be equal"),
        (config(quantization_config={"quant_method": "fp8"}), r"its weights are quantized \(fp8\).* in bfloat16"),
    ],
)
def test_a_folder_that_is_spoiled_is_refused(store: Store, folder: Path, spoil: Spoil, message: str) -> None:
    spoil(folder)
    refused(store, folder, message)


def test_an_index_without_files(store: Store, folder: Path) -> None:
    (folder / WEIGHTS).unlink()
    for index in ("{}", '{"weight_map": []}'):
        (folder / INDEX).write_text(index)
        refused(store, folder, re.escape(f"{INDEX}: no weight_map. Save the model"))


def test_a_tokenizer_with_more_tokens_than_the_model_is_refused(store: Store, folder: Path) -> None:
    tokenizer = load_tokenizer(folder)
    tokenizer.add_tokens(["<more>"])
    tokenizer.save_pretrained(folder)
    refused(store, folder, r"the tokenizer has 23 tokens and the model's vocabulary 22")


def test_weights_of_other_shapes_than_the_configuration_says_are_named(store: Store, folder: Path) -> None:
    weights = load_file(folder / WEIGHTS)
    weights["model.norm.weight"] = weights["model.norm.weight"][:-1].clone()
    save_file(weights, folder / WEIGHTS, {"format": "pt"})
    with pytest.raises(DataError, match=r"1 weights have other shapes .* model\.norm\.weight: \[(\d+)\] where it says"):
        load_model(take(store, folder))
