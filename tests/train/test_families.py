"""Any kind of causal language model samples, learns, is saved, and samples again what was learned."""

from pathlib import Path

import numpy as np
import pytest

from tasks.models.fitting import fitting_scorer
from tasks.models.loading import folder_weights
from tasks.models.scorer import pack
from tasks.settings import EngineSettings
from tasks.store import Store
from tasks.train.backend import open_backend
from tasks.train.batches import Responses, plan_batches
from tasks.train.checkpoint import save_policy
from tasks.train.stage import load_trainer
from tests.models.families import PACKABLE, PADDED, brought, made, sequences, shaped
from tests.prepared import take_policy
from tests.train.small import responses_with, sample_rows, settings, zero
from tests.train.together import FIRST, largest_difference, moments, run_in_group, work, work_all

KINDS = {**PACKABLE, **PADDED}
SHARED = [
    "logits with a bias",
    "experts",
    "convolution",
    "recurrence in one layer",
    "sinks",
    "caps of attention and logits",
]


def sampled_by(folder: Path) -> Responses:
    rows = sample_rows(folder, [f"{10**i}+{2 + i}=" for i in range(4)], 8, EngineSettings(batch_size=6))
    return responses_with(rows, np.arange(len(rows)) % 2.0)


@pytest.mark.parametrize("kind", KINDS)
def test_every_family_samples_learns_and_is_saved(kind: str, base: Path, store: Store, tmp_path: Path) -> None:
    folder = store.path(take_policy(store, brought(KINDS[kind], base, tmp_path / "brought")))
    responses = sampled_by(folder)
    trainer = load_trainer(folder, settings(learning_rate=1e-2), 8, 0)
    results = trainer.train(responses, plan_batches(responses, 8, (0, 0)), 0)
    assert results.logp_mismatch_max < 1e-4
    assert results.rows[0]["ratio_max_negative"] == results.rows[0]["ratio_p01_positive"] == 1.0
    assert min(row["grad_norm"] for row in results.rows) > 0
    (tmp_path / "saved").mkdir()
    save_policy(tmp_path / "saved", trainer.backend, folder)
    before, after = dict(folder_weights(folder)), dict(folder_weights(tmp_path / "saved"))
    assert before.keys() == after.keys()
    assert any((before[name] - after[name]).abs().max() > 1e-3 for name in before)
    again = sampled_by(tmp_path / "saved")
    later = load_trainer(tmp_path / "saved", settings(), 8, 0)
    assert later.train(again, plan_batches(again, 8, (0, 0)), 1).logp_mismatch_max < 1e-4


def test_gradient_checkpointing_turns_on_no_dropout_of_layers() -> None:
    shape = {"hidden_size": 32, "word_embed_proj_dim": 32, "ffn_dim": 48, "num_hidden_layers": 2, "dropout": 0.5}
    model = made(shaped("opt", **shape, vocab_size=40, num_attention_heads=4, max_position_embeddings=64)).eval()
    scorer, batch, gradients = fitting_scorer(model, 64), pack(*sequences(0, [(5, 3), (4, 6)])), []
    for one in (scorer, open_backend(scorer, settings(backend={"gradient_checkpointing": True}))):
        model.zero_grad()
        one(batch)[0].sum().backward()
        gradients.append({name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None})
    assert largest_difference(*gradients) < 1e-5


@pytest.mark.long
def test_processes_that_share_weights_do_what_one_does(base: Path, responses: Responses, tmp_path: Path) -> None:
    pytest.importorskip("deepspeed")
    folders = {kind: brought(KINDS[kind], base, tmp_path / kind / "brought") for kind in SHARED}
    jobs = [((of, responses, tmp_path / kind / "two", 0, zero("3")), {}) for kind, of in folders.items()]
    run_in_group(2, tmp_path / "meeting", work_all, jobs)
    for kind, folder in folders.items():
        work(folder, responses, tmp_path / kind / "one", 0, {})
        # A tenth of the gradient; later AdamW makes steps of what rounding left of gradients that are 0.
        one, two = (moments(tmp_path / kind / out, FIRST) for out in ("one", "two"))
        assert largest_difference(one, two) < 1e-7 < 1e-4 < max(float(moment.max()) for moment in one.values()), kind
