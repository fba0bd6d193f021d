"""Adapters change nothing at first, are merged for generation, and are refused where they do not fit."""

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig

from tasks.errors import ArtifactError, DataError
from tasks.models.loading import load_model
from tasks.models.lora import ADAPTER, merge_adapters
from tasks.models.scorer import Scorer, pack
from tasks.settings import LoraSettings
from tasks.train.batches import Responses
from tasks.train.checkpoint import save_optimizer, save_policy
from tasks.train.stage import load_trainer
from tasks.train.trainer import Trainer
from tests.models.families import PADDED, brought
from tests.train import conftest
from tests.train.small import LORA, batches, settings

peft = pytest.importorskip("peft")
responses = conftest.responses
SETTINGS = settings(lora=LORA, learning_rate=1e-2, max_logp_mismatch=100)


def logp(scorer: Scorer, responses: Responses) -> torch.Tensor:
    """Of the first responses."""
    rows = range(6)
    batch = pack([responses.prompt_tokens[row] for row in rows], [responses.response_tokens[row] for row in rows])
    with torch.no_grad():
        return scorer(batch)[0]


def of(folder: Path) -> Scorer:
    return Scorer(load_model(folder), 1024)


def trained(base: Path, responses: Responses, folder: Path, updates: int = 3) -> Trainer:
    """Adapters of a policy after some updates, in a folder too."""
    trainer = load_trainer(base, SETTINGS, 12, 0, base)
    trainer.train(responses, batches(responses)[:updates], 0)
    folder.mkdir()
    save_policy(folder, trainer.backend, base, SETTINGS.lora)
    save_optimizer(folder, trainer.backend, trainer.updates)
    return trainer


def test_adapters_change_nothing_before_the_first_update(base: Path, responses: Responses) -> None:
    trainer = load_trainer(base, SETTINGS, 12, 0, base)
    torch.testing.assert_close(logp(trainer.backend, responses), logp(of(base), responses), rtol=0, atol=1e-6)
    assert [4 in shape for shape in trainer.backend.shapes().values()] == [True] * (2 * 2 * 7)  # 7 layers of 2 blocks
    other = load_trainer(base, SETTINGS, 12, 1, base).backend.weights()
    assert not all(map(torch.equal, dict(trainer.backend.weights()).values(), dict(other).values()))


def test_the_first_update_has_ratio_one_and_moves_adapters_alone(base: Path, responses: Responses) -> None:
    trainer = load_trainer(base, SETTINGS, 12, 0, base)
    before = {name: p.detach().clone() for name, p in trainer.backend.model.named_parameters()}
    outcome = trainer.train(responses, batches(responses), 0)
    assert outcome.rows[0]["ratio_max_negative"] == outcome.rows[0]["ratio_p01_positive"] == 1.0
    moved = {name for name, p in trainer.backend.model.named_parameters() if not torch.equal(p, before[name])}
    assert moved == trainer.backend.shapes().keys()


def test_merged_weights_are_the_policy_with_its_adapters(base: Path, responses: Responses, tmp_path: Path) -> None:
    narrow = shutil.copytree(base, tmp_path / "narrow")
    text = (base / "config.json").read_text()
    (narrow / "config.json").write_text(text.replace('"dtype": "float32"', '"torch_dtype": "bfloat16"'))
    expected = logp(trained(narrow, responses, tmp_path / "policy").backend, responses)
    assert AutoConfig.from_pretrained(tmp_path / "policy").dtype == torch.float32
    assert (expected - logp(of(base), responses)).abs().max() > 0.01
    torch.testing.assert_close(logp(of(tmp_path / "policy"), responses), expected, rtol=0, atol=1e-5)
    both = peft.PeftModel.from_pretrained(load_model(base), tmp_path / "policy" / ADAPTER)
    torch.testing.assert_close(logp(Scorer(both.merge_and_unload(), 1024), responses), expected, rtol=0, atol=1e-5)


def test_adapters_of_another_rank_or_alpha_are_refused(base: Path, responses: Responses, tmp_path: Path) -> None:
    trained(base, responses, tmp_path / "policy", 1)
    for change, message in (
        ({"rank": 2}, r"no adapter of shape \(2, 32\) for .*lora_A"),
        ({"alpha": 32}, r"made with optimize\.lora\.alpha 16; 32 would scale"),
    ):
        other = SETTINGS.model_copy(update={"lora": LoraSettings(**{**LORA, **change})})
        with pytest.raises(ArtifactError, match=message):
            load_trainer(tmp_path / "policy", other, 12, 0, base)
    with pytest.raises(DataError, match=r"only adapters of this policy were trained.*keep its optimize\.lora"):
        load_trainer(tmp_path / "policy", settings(), 12, 0)


@pytest.mark.parametrize(("config", "kind"), [("convolution and recurrence", "mamba"), ("chunks", "llama4_text")])
def test_models_that_peft_refuses_are_named(base: Path, tmp_path: Path, config: str, kind: str) -> None:
    model = brought(PADDED[config], base, tmp_path / kind)
    message = rf"optimize\.lora: peft cannot add adapters to a {kind} model.*Leave optimize\.lora"
    with pytest.raises(DataError, match=message):
        load_trainer(model, SETTINGS, 12, 0, model)


def test_a_policy_with_trained_weights_takes_no_adapters(base: Path, responses: Responses, tmp_path: Path) -> None:
    trainer = load_trainer(base, settings(), 12, 0)
    trainer.train(responses, batches(responses)[:1], 0)
    save_policy(tmp_path, trainer.backend, base)
    save_optimizer(tmp_path, trainer.backend, 1)
    with pytest.raises(DataError, match=r"all weights of this policy were trained, so optimize\.lora cannot go on"):
        load_trainer(tmp_path, SETTINGS, 12, 0, base)


def test_adapters_that_fit_no_weights_are_refused(base: Path, responses: Responses, tmp_path: Path) -> None:
    weights = load_file(base / "model.safetensors")
    trainer = trained(base, responses, tmp_path / "policy", 1)
    # transformers loads these names too, which some models on the hub have.
    short = {name.removeprefix("model."): weight for name, weight in weights.items()}
    message = r"14 of the weights that get adapters .* model\.layers\.0\.mlp\.down_proj\.weight"
    with pytest.raises(DataError, match=message):
        dict(merge_adapters(short.items(), dict(trainer.backend.weights()), LoraSettings()))
    other = tmp_path / "other"
    shutil.copytree(base, other)
    save_file(short, other / "model.safetensors", metadata={"format": "pt"})
    load_model(other)
    with pytest.raises(DataError, match=r"optimize\.lora: 14 of the weights that get adapters .* save_pretrained"):
        load_trainer(other, SETTINGS, 12, 0, other)
