"""Which tokens stop a response, and what is told where nearly all responses end at the limit."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from tasks.artifacts import ArtifactRef, Store
from tasks.artifacts.tables import ROLLOUTS, read_table, to_table
from tasks.policy.loading import load_model
from tasks.policy.step import prepare_policy
from tasks.rollout.limit import AtLimit
from tasks.rollout.step import generate_shard
from tasks.settings import ArithmeticSettings, PolicySettings, RolloutSettings
from tests.llama import CHATML, TURN_END, byte_tokenizer, llama
from tests.rollout.test_missing import prompts

SETTINGS = RolloutSettings(responses_per_prompt=8, max_new_tokens=40)


def taken(store: Store, folder: Path) -> ArtifactRef:
    return prepare_policy(store, PolicySettings(path=str(folder)), ArithmeticSettings(), "", 0)


def preferring(folder: Path, *tokens: int) -> Path:
    """The model in a folder, so changed that it often samples some tokens, and rarely another special one."""
    model = load_model(folder)
    with torch.no_grad():
        # What all hidden states share decides, whatever they are besides.
        model.model.embed_tokens.weight[:, 0] = 20.0
        for layer in model.model.layers:
            layer.self_attn.o_proj.weight[:] = 0
            layer.mlp.down_proj.weight[:] = 0
        model.lm_head.weight[:, 0] = 0
        model.lm_head.weight[:4, 0] = -4.0
        model.lm_head.weight[list(tokens), 0] = 1.2
    model.save_pretrained(folder)
    return folder


def test_the_end_of_a_turn_stops_where_generation_settings_name_another(store: Store, tmp_path: Path) -> None:
    tokenizer = byte_tokenizer(eos=TURN_END, template=CHATML)
    policy = taken(store, preferring(llama(tmp_path / "llama", tokenizer), 1, 3))
    made = generate_shard(store, SETTINGS, policy, prompts(store, "1+1=", "2+2="), 0, 0)
    rows = read_table(store.path(made) / "rollouts.parquet").to_pylist()
    last = [row["response_token_ids"][-1] for row in rows if row["finish_reason"] == "stop"]
    assert set(last) == {1, 3}
    assert not any({1, 3} & set(row["response_token_ids"][:-1]) for row in rows)
    assert "warning" not in store.manifest(made).facts


def test_a_warning_names_the_token_that_would_stop_nearly_all(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = preferring(llama(tmp_path / "llama"), 3)
    made = generate_shard(store, SETTINGS, taken(store, folder), prompts(store, "1+1=", "2+2="), 0, 0)
    warning = store.manifest(made).facts["warning"]
    assert "stage 1 generate: 100.0 % of 16 responses end at rollout.max_new_tokens 40" in warning
    assert "(</s> 1)" in warning
    assert "go on after <|im_end|> 3: to stop there, add 3 to eos_token_id in the generation_config.json" in warning
    assert capsys.readouterr().out.count(warning) == 1


@pytest.mark.parametrize(
    ("cut", "responses", "inside", "expected"),
    [
        (8, 10, [], None),
        (9, 10, [], "Raise rollout.max_new_tokens"),
        (10, 10, [3], "add 3 to eos_token_id"),
        (10, 10, [2, 3], "add 2 to eos_token_id"),
        (0, 0, [], None),
    ],
)
def test_nearly_all_is_nine_of_ten(cut: int, responses: int, inside: list[int], expected: str | None) -> None:
    limit = AtLimit(byte_tokenizer(), [1], "rollout.max_new_tokens 4")
    for number in range(responses):
        ids = np.array([70, *inside, 71], np.int32)
        limit.add(ids, "length" if number < cut else "stop")
    found = limit.facts("stage 1 generate").get("warning")
    assert (found is None) if expected is None else (expected in str(found))


def test_a_table_counts_as_its_rows_do() -> None:
    rows: list[dict[str, Any]] = [
        {"finish_reason": "length" if number else "stop", "response_token_ids": [70, 3, 71]} for number in range(20)
    ]
    one, other = (AtLimit(byte_tokenizer(), [1], "rollout.max_new_tokens 3") for _ in range(2))
    table: pa.Table = to_table(rows, ROLLOUTS)
    for part in (table.slice(0, 7), table.slice(7)):
        one.add_table(part)
    for row in rows:
        other.add(np.array(row["response_token_ids"], np.int32), row["finish_reason"])
    assert one.facts("x") == other.facts("x") != {}
