"""vLLM and the trainer mean the same model, of whatever kind: its logits' scale and cap, windows, experts, sinks."""

from copy import deepcopy
from pathlib import Path

import pytest
import torch

from tasks.models.fitting import fitting_scorer
from tasks.models.loading import load_model
from tasks.models.scorer import pack
from tasks.rollout.engine import Request, Sampling, load_engine
from tasks.settings import EngineSettings
from tests.models.families import PACKABLE, PADDED, brought

pytest.importorskip("vllm")
KINDS = [
    "windows and others",
    "experts",
    "logits divided",
    "logits multiplied",
    "places by ALiBi",
    "sinks",
    "caps of attention and logits",
]


@pytest.mark.parametrize("kind", KINDS)
def test_vllm_gives_the_log_probabilities_of_the_trainer(kind: str, base: Path, tmp_path: Path) -> None:
    config = deepcopy({**PACKABLE, **PADDED}[kind])
    # vLLM's attention on a CPU has no heads that are narrower than 32, and no narrower experts.
    config.hidden_size = config.intermediate_size = 128
    if getattr(config, "head_dim", None):
        config.head_dim = 32
    folder = brought(config, base, tmp_path / "policy")
    engine = load_engine(folder, EngineSettings(kind="vllm", eager=True))
    requests = [Request("a", sample, list(range(3, 20)), sample) for sample in range(2)]
    requests += [Request("b", 0, [7, 8], 2), Request("c", 0, [9], 3)]
    responses = engine.generate(requests, Sampling(30), lambda _responses, _tokens: None)
    engine.close()
    batch = pack([one.prompt_token_ids for one in requests], [one.token_ids for one in responses])
    with torch.no_grad():
        logp_T, _ = fitting_scorer(load_model(folder), 16)(batch)
    theirs_T = torch.cat([torch.from_numpy(one.logp) for one in responses])
    torch.testing.assert_close(logp_T, theirs_T, rtol=0, atol=1e-3)
    assert logp_T.std() > 0.1
