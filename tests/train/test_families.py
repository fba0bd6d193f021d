"""Any kind of causal language model samples, learns, is saved, and samples again what was learned."""

from pathlib import Path

import numpy as np
import pytest

from tasks.models.loading import folder_weights, load_tokenizer
from tasks.models.step import prepare_policy
from tasks.rollout.step import sample
from tasks.rollout.transformers_engine import TransformersEngine
from tasks.settings import ArithmeticSettings, EngineSettings, PolicySettings, RolloutSettings
from tasks.store import ArtifactRef, Store
from tasks.store.tables import ROLLOUTS, to_table
from tasks.train.batches import Responses, collect, plan_batches
from tasks.train.checkpoint import save_policy
from tasks.train.stage import load_trainer
from tests.models.families import PACKABLE, PADDED, brought
from tests.train import test_trainer
from tests.train.test_trainer import settings, untimed, verdicts
from tests.train.together import FIRST, farthest, joined, moments, work, work_all
from tools import ROOT

Small = tuple[Store, ArtifactRef]
GROUP = 4
KINDS = {**PACKABLE, **PADDED}
SHARED = [
    "logits with a bias",
    "experts",
    "convolution",
    "recurrence in one layer",
    "sinks",
    "caps of attention and logits",
]
responses = test_trainer.responses
ROLLOUT = RolloutSettings(responses_per_prompt=GROUP, max_new_tokens=8)


def sampled(folder: Path) -> Responses:
    prompts = [{"prompt_id": f"p{i}", "prompt": f"{10**i}+{2 + i}=", "answer": "1", "chat": False} for i in range(4)]
    engine = TransformersEngine.load(folder, EngineSettings(batch_size=6))
    rows = sample(engine, load_tokenizer(folder), ROLLOUT, prompts, "x", 0, 0)
    return collect([to_table(rows, ROLLOUTS)], [verdicts(rows, np.arange(len(rows)) % 2.0)], GROUP)


@pytest.mark.parametrize("kind", KINDS)
def test_a_policy_of_any_kind_goes_round(kind: str, small: Small, store: Store, tmp_path: Path) -> None:
    policy = PolicySettings(path=str(brought(KINDS[kind], small[0].path(small[1]), tmp_path / "brought")))
    folder = store.path(prepare_policy(store, policy, ArithmeticSettings(), "", 0))

    responses = sampled(folder)
    trainer = load_trainer(folder, settings(learning_rate=1e-2), 8, 0)
    outcome = trainer.train(responses, plan_batches(responses, 8, (0, 0)), 0, untimed)
    assert outcome.logp_mismatch_max < 1e-4
    assert outcome.rows[0]["ratio_max_negative"] == outcome.rows[0]["ratio_p01_positive"] == 1.0
    assert min(row["grad_norm"] for row in outcome.rows) > 0
    (tmp_path / "saved").mkdir()
    save_policy(tmp_path / "saved", trainer.backend, folder)
    before, after = dict(folder_weights(folder)), dict(folder_weights(tmp_path / "saved"))
    assert before.keys() == after.keys()
    assert any((before[name] - after[name]).abs().max() > 1e-3 for name in before)
    again = sampled(tmp_path / "saved")
    later = load_trainer(tmp_path / "saved", settings(), 8, 0)
    assert later.train(again, plan_batches(again, 8, (0, 0)), 1, untimed).logp_mismatch_max < 1e-4


@pytest.mark.long
def test_processes_that_share_weights_do_what_one_does(small: Small, responses: Responses, tmp_path: Path) -> None:
    pytest.importorskip("deepspeed")
    file = ROOT / "configs/deepspeed/zero3.json"
    backend = {"kind": "deepspeed", "deepspeed": str(file), "processes": 2}
    folders = {kind: brought(KINDS[kind], small[0].path(small[1]), tmp_path / kind / "brought") for kind in SHARED}
    jobs = [((of, responses, tmp_path / kind / "two", 0, backend), {}) for kind, of in folders.items()]
    joined(2, tmp_path / "meeting", work_all, jobs)
    for kind, folder in folders.items():
        work(folder, responses, tmp_path / kind / "one", 0, {})
        # A tenth of the gradient; later AdamW makes steps of what rounding left of gradients that are 0.
        one, two = (moments(tmp_path / kind / out, str(FIRST)) for out in ("one", "two"))
        assert farthest(one, two) < 1e-7 < 1e-4 < max(float(moment.max()) for moment in one.values()), kind
