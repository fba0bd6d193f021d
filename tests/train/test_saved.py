"""What a stage saves can be loaded by whatever loaded what it started from."""

import json
import shutil
from pathlib import Path

import pytest
import torch

from tasks.models.loading import folder_weights, load_model, stop_token_ids
from tasks.store import ArtifactRef, Store
from tasks.train.checkpoint import save_policy
from tasks.train.stage import load_trainer
from tests.train.test_trainer import settings

Small = tuple[Store, ArtifactRef]


@pytest.mark.parametrize(
    "generation",
    [
        {"temperature": 0.9, "top_p": 0.6, "eos_token_id": 2},
        {"do_sample": False, "temperature": 0.6, "top_p": 0.95, "eos_token_id": [1, 2]},
        {"do_sample": True, "temperature": 0.0, "eos_token_id": [1, 2]},
        {"pad_token_id": -1, "eos_token_id": [1]},
        None,
    ],
)
def test_settings_of_generation_go_along_as_they_are(small: Small, tmp_path: Path, generation: dict | None) -> None:
    base, saved = tmp_path / "base", tmp_path / "saved"
    shutil.copytree(small[0].path(small[1]), base)
    saved.mkdir()
    file = base / "generation_config.json"
    file.unlink(missing_ok=True)
    if generation is not None:
        file.write_text(json.dumps(generation))
    trainer = load_trainer(base, settings(), 12, 0)
    save_policy(saved, trainer.backend, base)
    assert stop_token_ids(saved) == stop_token_ids(base)
    copy = saved / file.name
    assert copy.read_bytes() == file.read_bytes() if generation is not None else not copy.exists()
    weights = dict(folder_weights(saved))
    assert all(torch.equal(weights[name], weight) for name, weight in folder_weights(base))
    load_model(saved)
