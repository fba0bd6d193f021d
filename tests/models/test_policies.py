"""Base policies: made here, taken from a folder, or refused with what is missing."""

import json
import os
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedModel, PreTrainedTokenizerFast

from tasks.data.arithmetic import BOXED, PROGRAM, Form, problems
from tasks.errors import DataError, SettingsError
from tasks.models import step
from tasks.models.loading import folder_weights, load_model, load_tokenizer, stop_token_ids
from tasks.models.prompts import token_ids
from tasks.models.step import prepare_policy
from tasks.models.tiny import build_tokenizer
from tasks.settings import ArithmeticSettings, PolicySettings, WarmStartSettings
from tasks.store import Store
from tasks.store.fetch import fingerprint
from tasks.store.s3 import connect
from tests.conftest import SMALL
from tests.llama import CHATML, TURN_END, byte_tokenizer, llama
from tests.models.families import change
from tests.prepared import Small, take_policy

CODE = """
from transformers import Qwen3Config, Qwen3ForCausalLM
class OwnConfig(Qwen3Config):
    model_type = "own"
class Own(Qwen3ForCausalLM):
    config_class = OwnConfig
"""


@pytest.mark.parametrize("form", [BOXED, PROGRAM])
def test_the_tokenizer_round_trips_every_problem(form: Form) -> None:
    tokenizer = build_tokenizer(form)
    for level in (1, 2, 3, 4):
        for problem in list(problems(level))[::97]:
            text = problem.prompt + problem.solution(form=form)
            ids = tokenizer(text)["input_ids"]
            assert tokenizer.decode(ids) == text
            assert len(ids) == len(f"{problem.prompt}{problem.working}{problem.answer}") + 2
            assert tokenizer.pad_token_id not in ids
    assert tokenizer("1<end>")["input_ids"][-1] == tokenizer.eos_token_id


def test_a_tiny_policy_depends_on_its_seed_alone(small: Small, store: Store) -> None:
    _, policy = small
    tiny = PolicySettings(tiny=SMALL)
    again, other = (prepare_policy(store, tiny, ArithmeticSettings(), "", seed) for seed in (0, 1))
    assert again == policy != other


def test_a_tiny_policy_may_have_no_warm_start(store: Store) -> None:
    cold = SMALL.model_copy(update={"warm_start": WarmStartSettings(working_updates=0, guessing_updates=0)})
    made = prepare_policy(store, PolicySettings(tiny=cold), ArithmeticSettings(), "", 0)
    assert store.manifest(made).facts["warm_start_cross_entropy"] is None


def test_files_that_belong_to_no_policy_are_not_copied(small: Small, store: Store, folder: Path, monkeypatch) -> None:
    """A manifest, what a merged adapter left, and weights in a second format."""
    (folder / "adapter_config.json").write_text('{"peft_type": "LORA"}')
    weights = load_file(folder / "model.safetensors")
    for foreign in ("consolidated.safetensors", "model-00001-of-00001.safetensors"):
        save_file({"wq": torch.zeros(2, 2)}, folder / foreign)
    index = {"weight_map": {"wq": "model-00001-of-00001.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    (folder / "original").mkdir()
    monkeypatch.setattr("tasks.store.fetch._HASHED_BYTES", 0)  # as if the weights were large
    before = fingerprint(str(folder))
    os.utime(folder / "model.safetensors", (0, 0))
    assert fingerprint(str(folder)) != before
    policy = take_policy(store, folder)
    assert policy == small[1]
    assert store.manifest(policy).settings["path"] == str(folder)
    assert dict(folder_weights(store.path(policy))).keys() == weights.keys()


def test_weights_in_several_files_are_those_that_the_index_names(store: Store, folder: Path) -> None:
    model, weights = load_model(folder), load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    model.save_pretrained(folder, max_shard_size="20KB")
    save_file({"wq": torch.zeros(2, 2)}, folder / "model-extra.safetensors")
    taken = store.path(take_policy(store, folder))
    assert len(list(taken.glob("*.safetensors"))) > 1
    found = dict(folder_weights(taken))
    assert all(torch.equal(found[name], weight) for name, weight in weights.items())
    assert found.keys() == weights.keys()
    max(folder.glob("model-0*.safetensors")).unlink()
    with pytest.raises(DataError, match=r"nor all files of model\.safetensors\.index\.json; found .*, not \['model-0"):
        take_policy(store, folder)
    with pytest.raises(DataError, match=r"policy\.revision: 'v1' of .*, which is not on the hub; allowed: null"):
        prepare_policy(store, PolicySettings(path=str(folder), revision="v1"), ArithmeticSettings(), "", 0)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("./nowhere", r"policy.path: './nowhere' is not a folder"),
        ("no-one/no-model", "'no-one/no-model' is not a folder here and could not be fetched"),
    ],
)
def test_a_source_that_is_not_there_is_refused(store: Store, source: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        take_policy(store, source)


def test_a_prefix_on_s3_is_taken_like_a_folder(small: Small, store: Store, folder: Path, bucket: str) -> None:
    _, policy = small
    files = connect()
    with pytest.raises(DataError, match=f"policy.path: there is nothing at {bucket}/model"):
        take_policy(store, f"{bucket}/model")
    files.put(f"{folder}/", f"{bucket}/model/", recursive=True)
    assert take_policy(store, f"{bucket}/model") == policy
    before = fingerprint(f"{bucket}/model")
    files.pipe_file(f"{bucket}/model/runs/store.json", b"a store below it, which every run changes")
    assert fingerprint(f"{bucket}/model") == before
    files.pipe_file(f"{bucket}/model/config.json", (folder / "config.json").read_bytes()[::-1])
    assert fingerprint(f"{bucket}/model") != before


def test_a_policy_is_fetched_into_the_folder_that_is_swept(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a killed process has fetched does not stay on the disk."""
    places: list[Path] = []
    monkeypatch.setattr(step, "fetch", lambda _source, place, *_: places.append(place))
    with pytest.raises(DataError, match="s3://bucket/model: no config"):
        take_policy(store, "s3://bucket/model")
    assert store.root / "staging" in places[0].parents


def test_code_that_comes_with_a_model_is_run_only_when_asked_for(store: Store, folder: Path) -> None:
    classes = {"AutoConfig": "own.OwnConfig", "AutoModelForCausalLM": "own.Own"}
    change(folder / "config.json", model_type="own", auto_map=classes)
    (folder / "own.py").write_text(CODE)
    with pytest.raises(DataError, match=r"a own model is defined by Python files .*policy.trust_remote_code: true"):
        take_policy(store, folder)
    asked = PolicySettings(path=str(folder), trust_remote_code=True)  # asked for by name: own.py is this test's
    policy = prepare_policy(store, asked, ArithmeticSettings(), "", 0)
    assert type(load_model(store.path(policy))).__name__ == "Own"


def test_stop_tokens_are_those_of_the_generation_settings_and_of_the_tokenizer(folder: Path, tmp_path: Path) -> None:
    (folder / "generation_config.json").write_text('{"eos_token_id": [1, 5]}')
    assert stop_token_ids(folder) == [1, 5]
    (folder / "generation_config.json").unlink()
    (folder / "config.json").write_text("{}")
    assert stop_token_ids(folder) == [1]
    # Generation settings with </s>, and a tokenizer that ends a turn with <|im_end|>.
    assert stop_token_ids(llama(tmp_path / "llama", byte_tokenizer(eos=TURN_END))) == [1, 3]


def test_a_policy_that_does_not_fit_the_gpu_is_named(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    too_large = Mock(side_effect=torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"))
    monkeypatch.setattr(PreTrainedModel, "to", too_large)
    with pytest.raises(SettingsError, match=r"policy: out of memory\. .*, or a smaller policy\. \(CUDA out of memory"):
        load_model(base)


def named(folder: Path, kind: str, tokenizer_class: str) -> Path:
    """Name the kind of a folder's model and the class of its tokenizer, as some models on the hub do."""
    change(folder / "config.json", model_type=kind)
    change(folder / "tokenizer_config.json", tokenizer_class=tokenizer_class)
    return folder


@pytest.mark.parametrize("kind", ["llama", "qwen3"])
def test_a_byte_level_tokenizer_keeps_its_spaces_whatever_class_its_folder_names(tmp_path: Path, kind: str) -> None:
    # DeepSeek-R1-Distill-Llama and DeepSeek-R1-0528-Qwen3 name this class, which reads spaces of SentencePiece.
    expected = byte_tokenizer(eos=TURN_END, adds="<s> $A", template=CHATML)
    taken = load_tokenizer(named(llama(tmp_path / "llama", expected), kind, "LlamaTokenizerFast"))
    text = "a b\n\n  c"
    assert taken(text)["input_ids"] == expected(text)["input_ids"]
    assert taken.decode(expected(text)["input_ids"], skip_special_tokens=True) == text
    assert (taken.bos_token, taken.eos_token, taken.pad_token) == ("<s>", TURN_END, "</s>")
    rows = [{"prompt": text, "chat": chat, "date": "26 Jul 2024"} for chat in (False, True)]
    assert token_ids(taken, rows) == token_ids(expected, rows)


def test_a_number_has_the_tokens_of_the_file_whatever_class_its_folder_names(tmp_path: Path) -> None:
    # HyperCLOVA X names this class, which does not cut numbers after three digits.
    expected = byte_tokenizer()
    made, digits = expected.backend_tokenizer, "0123456789"
    merges = [(a, b) for a in (*digits, *(a + b for a in digits for b in digits)) for b in digits]
    tokens = {a + b: len(expected) + place for place, (a, b) in enumerate(merges)}
    made.model = models.BPE({**expected.get_vocab(), **tokens}, merges)
    threes = pre_tokenizers.Split(Regex(r"\p{N}{1,3}"), "isolated")
    made.pre_tokenizer = pre_tokenizers.Sequence([threes, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    taken = load_tokenizer(named(llama(tmp_path / "llama", expected), "llama", "GPT2Tokenizer"))
    assert taken("2023")["input_ids"] == expected("2023")["input_ids"]


def test_a_text_begins_as_the_configuration_of_a_llama_tokenizer_says(tmp_path: Path) -> None:
    # The file of DeepSeek-R1-Distill-Qwen puts no token before a text, and its configuration does.
    folder = named(llama(tmp_path / "llama"), "qwen2", "LlamaTokenizerFast")
    for adds in (True, False):
        change(folder / "tokenizer_config.json", add_bos_token=adds)
        assert token_ids(load_tokenizer(folder), [{"prompt": "a", "chat": False}])[0][:-1] == [0] * adds


def test_a_tokenizer_of_sentencepiece_keeps_its_class(tmp_path: Path) -> None:
    texts = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "\u2581", *"abx"]
    vocabulary = {text: place for place, text in enumerate(texts)}
    made = Tokenizer(models.BPE(vocabulary, [], unk_token="<unk>", byte_fallback=True))
    made.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    made.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=made, unk_token="<unk>", bos_token="<s>", eos_token="</s>")
    taken = load_tokenizer(named(llama(tmp_path / "llama", tokenizer), "llama", "LlamaTokenizerFast"))
    assert type(taken).__name__ == "LlamaTokenizer"
    ids = taken("a b\n\n  x")["input_ids"]
    assert ids == made.encode("a b\n\n  x").ids
    assert taken.decode(ids) == "a b\n\n  x"
    # As in chats of Llama 2 and TinyLlama, whose files put a space behind every special token.
    chat = Tokenizer.from_file(str(tmp_path / "llama/tokenizer.json")).encode("<s>a</s> x</s>b").ids
    assert taken("<s>a</s> x</s>b")["input_ids"] == chat
