"""DeepSpeed on two processes does what torch does in one: gradients, weights, states that either goes on from."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from tasks.errors import SettingsError
from tasks.train.batches import Responses, micro_batches, shares
from tasks.train.stage import load_trainer
from tests.train.small import LORA, settings, zero
from tests.train.test_diagnostics import assert_close_rows
from tests.train.together import FIRST, HALF, LAST, largest_difference, moments, run_in_group, weights, work, work_all

pytest.importorskip("deepspeed")
STAGES = ["1", "2", "3", "3-offload"]


@pytest.fixture(scope="module")
def alone(base: Path, responses: Responses, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What plain torch in one process makes."""
    out = tmp_path_factory.mktemp("alone")
    work(base, responses, out, 0, {})
    return out


@pytest.fixture(scope="module")
def pairs(base: Path, responses: Responses, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for every ZeRO stage with what it makes in two processes, also going on from its state half way."""
    out = tmp_path_factory.mktemp("pairs")
    jobs = [((base, responses, out / stage, begin, zero(stage)), {}) for stage in STAGES for begin in (0, HALF)]
    for stage in ("2", "3"):
        jobs.append(((base, responses, out / f"bf16-{stage}", 0, zero(stage, dtype="bfloat16")), {}))
        jobs.append(((base, responses, out / f"lora-{stage}", 0, zero(stage)), {"lora": LORA}))
    run_in_group(2, out / "meeting", work_all, jobs)
    return out


@pytest.fixture(params=STAGES)
def pair(pairs: Path, request: pytest.FixtureRequest) -> Path:
    return pairs / request.param


def test_two_processes_make_what_one_makes(alone: Path, pair: Path) -> None:
    # After the first step the first moment is a tenth of the gradient.
    assert largest_difference(moments(pair, FIRST), moments(alone, FIRST)) < 1e-7
    first, ours, theirs = weights(alone, FIRST), weights(pair, LAST), weights(alone, LAST)
    assert largest_difference(ours, theirs) < 1e-5 < 1e-3 < largest_difference(first, theirs)
    assert_close_rows(*(json.loads((out / "examples.json").read_text()) for out in (pair, alone)), within=1e-3)


def test_two_processes_give_the_diagnostics_of_one(alone: Path, pair: Path) -> None:
    ours, theirs = (json.loads((out / "rows.json").read_text()) for out in (pair, alone))
    assert len(ours) == LAST
    for row, expected in zip(ours, theirs, strict=True):
        assert row.keys() == expected.keys()
        for name in ("tokens", "responses", "stage", "update", "reward", "advantage_histogram"):
            assert row[name] == expected[name]
        for name in ("loss", "grad_norm", "entropy", "kl_k3", "ess", "ratio_p99_negative"):
            close = None if expected[name] is None else pytest.approx(expected[name], rel=1e-3, abs=1e-6)
            assert row[name] == close


def test_one_and_two_go_on_from_two(base: Path, responses: Responses, alone: Path, pair: Path, tmp_path: Path) -> None:
    shutil.copytree(pair / str(HALF), tmp_path / str(HALF))
    shutil.copyfile(pair / f"{HALF}.safetensors", tmp_path / f"{HALF}.safetensors")
    work(base, responses, tmp_path, HALF, {})
    assert largest_difference(weights(tmp_path, f"{LAST}-again"), weights(alone, LAST)) < 1e-5
    for state in (weights, moments):
        assert largest_difference(state(pair, f"{LAST}-again"), state(pair, LAST)) == 0


def test_a_key_that_deepspeed_refuses_is_named(base: Path, tmp_path: Path) -> None:
    run_in_group(1, tmp_path / "meeting", refused, base)


def refused(folder: Path) -> None:
    file = {"zero_optimization": {"stage": 2, "reduce_bucket": 5}}
    with pytest.raises(SettingsError, match=r"^optimize.backend.deepspeed: .* reduce_bucket Extra inputs are not"):
        load_trainer(folder, settings(backend={"kind": "deepspeed", "deepspeed": file}), 12, 0)


def test_gradient_checkpointing_changes_nothing(base: Path, responses: Responses, alone: Path, tmp_path: Path) -> None:
    work(base, responses, tmp_path, 0, {"gradient_checkpointing": True})
    assert largest_difference(weights(tmp_path, LAST), weights(alone, LAST)) < 1e-6


@pytest.mark.parametrize("made", ["alone", "bf16-2", "bf16-3"])
def test_bfloat16_computes_and_float32_weights_keep_small_updates(
    made: str, base: Path, responses: Responses, alone: Path, pairs: Path, tmp_path: Path
) -> None:
    out = tmp_path if made == "alone" else pairs / made
    if made == "alone":
        work(base, responses, out, 0, {"dtype": "bfloat16"})
    first, last = weights(out, FIRST), weights(out, LAST)
    assert all(weight.dtype == torch.float32 for weight in last.values())
    assert AutoModelForCausalLM.from_pretrained(out / "policy").dtype == torch.float32
    # After a first step of 1e-3 the weights are not bfloat16 numbers.
    norm = first["model.norm.weight"]
    assert not torch.equal(norm, norm.bfloat16().float())
    for update in (FIRST, HALF):
        # First moments have the direction of the gradients.
        states = moments(out, update), moments(alone, update)
        firsts = [name for name in states[0] if name.endswith("exp_avg")]
        ours, theirs = (torch.cat([state[name].flatten() for name in firsts]) for state in states)
        assert torch.cosine_similarity(ours, theirs, dim=0) > 0.99
    assert largest_difference(last, weights(alone, LAST)) < 5e-3


def test_two_processes_train_adapters_as_one(base: Path, responses: Responses, pairs: Path, tmp_path: Path) -> None:
    work(base, responses, tmp_path, 0, {}, lora=LORA)
    for stage in ("2", "3"):
        for name in (f"{LAST}.safetensors", "policy/model.safetensors", "policy/adapter/adapter_model.safetensors"):
            assert largest_difference(load_file(pairs / f"lora-{stage}" / name), load_file(tmp_path / name)) < 1e-5


@given(st.lists(st.integers(1, 60), max_size=30), st.integers(20, 80), st.integers(1, 5))
def test_shares_are_equal_and_lose_nothing(lengths: list[int], budget: int, processes: int) -> None:
    tokens_R = np.array(lengths, dtype=np.int64)
    dealt = shares(micro_batches(tokens_R, budget), tokens_R, processes)
    assert len(dealt) == processes
    (steps,) = {len(parts) for parts in dealt}
    assert steps > 0  # An update without responses is shared too.
    assert sorted(row for parts in dealt for part in parts for row in part) == [*range(len(lengths))]
    for part in [part for parts in dealt for part in parts]:
        assert tokens_R[part].sum() <= max([budget, *lengths])
    if len(lengths) >= processes:
        assert all(any(len(part) for part in parts) for parts in dealt)
