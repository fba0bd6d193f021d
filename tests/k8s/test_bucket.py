"""The bucket's policies and lifecycle, on a server that enforces them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tasks.data.files import read_rows
from tasks.data.sources import source_files
from tasks.settings import SourceSettings
from tasks.store import Store
from tasks.store.files import sweep
from tasks.store.work import run_once
from tests.faults.guarded import Guarded, act_as
from tests.faults.steps import Step
from tests.k8s.policies import BUCKET, FOLDER, expires, wrong
from tools.s3 import server


@pytest.fixture(scope="module")
def guarded() -> Iterator[Guarded]:
    with server() as running:
        running.client().create_bucket(Bucket=BUCKET)
        running.put(f"{BUCKET}/prompts/a.jsonl", b'{"prompt": "1+1", "answer": "2"}\n')
        yield Guarded(running)


def client_of(guarded: Guarded, keys: dict[str, str]) -> Any:
    return guarded.s3.client(**{name.lower(): key for name, key in keys.items()})


def statements(name: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads((FOLDER / name).read_text())["Statement"]
    return found


def test_steps_may_make_their_requests_alone(guarded: Guarded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    act_as(guarded.s3.environment(tmp_path / "cache"), monkeypatch)
    _, keys = guarded.user(*statements("policy-steps.json"))
    act_as(keys, monkeypatch)
    client = client_of(guarded, keys)
    with guarded.asking():
        store = Store.open(f"s3://{BUCKET}/runs")
        assert store.manifests(run_once(store.ref, "step", "1", Step()).kind)
        sweep(store.root)
        source = SourceSettings(path=f"s3://{BUCKET}/prompts/a.jsonl")
        with source_files(source, "prompts.path") as files:
            assert len(read_rows(files, source, "math")[0]) == 1
        for key in ("flyte/data/0", "flyte/metadata/propeller/run/n0/data/0/outputs.pb"):
            client.put_object(Bucket=BUCKET, Key=key, Body=b"")
        for key in (
            "prompts/a.jsonl",
            "policies/model.safetensors",
            "other",
            "flyte/uploads/code",
            "flyte/metadata/admin/a",
        ):
            with pytest.raises(ClientError, match="AccessDenied"):
                client.put_object(Bucket=BUCKET, Key=key, Body=b"")
        for key in ("prompts/a.jsonl", "flyte/data/0"):
            with pytest.raises(ClientError, match="AccessDenied"):
                client.delete_object(Bucket=BUCKET, Key=key)


def test_flyte_never_touches_runs_and_readers_never_write(guarded: Guarded) -> None:
    allowed = {
        "policy-flyte.json": {(what, key) for what in ("get", "put") for key in ("flyte/x", "metadata/x")},
        "policy-readers.json": {("get", "flyte/x"), ("get", "runs/report")},
    }
    for key in ("flyte/x", "metadata/x", "runs/report"):
        guarded.s3.put(f"{BUCKET}/{key}", b"")
    for policy, may in allowed.items():
        _, keys = guarded.user(*statements(policy))
        client = client_of(guarded, keys)
        done = set()
        with guarded.asking():
            for key in ("flyte/x", "metadata/x", "runs/report"):
                for what, call in (("get", client.get_object), ("put", client.put_object)):
                    try:
                        call(Bucket=BUCKET, Key=key)
                        done.add((what, key))
                    except ClientError as error:
                        if error.response["Error"]["Code"] != "AccessDenied":
                            raise
        assert done == may, policy


# Keys that Flyte 1.16.8 with the values of k8s/flyte left after `smoke`, and the days after which they expire.
EXECUTION = "mu-grpo-development-smoke1"
KEYS = {
    "runs/optimize/3f1c/manifest.json": None,
    "prompts/a.jsonl": None,
    "policies/qwen/model.safetensors": None,
    "flyte/metadata/admin/mu-grpo/development/workflows.mu_grpo.mu_grpo/451d347": None,
    "flyte/metadata/catalog/mu-grpo/development/flyte_task-generate/1-a/0b9e/o0/data.pb": None,
    f"flyte/metadata/propeller/{EXECUTION}/n7/data/0/outputs.pb": 90,
    f"flyte/metadata/propeller/{EXECUTION}/n7/data/0/deck.html": 90,
    "flyte/data/ab/smoke1-n7-0/7f/00000": 90,
    "flyte/uploads/mu-grpo/development/ABC/script_mode.tar.gz": 90,
    "metadata/mu-grpo/development/smoke1/inputs": 365,
}


def test_every_key_of_a_run_is_allowed_and_outlives_the_lifecycle() -> None:
    assert wrong(KEYS) == []
    assert {key: expires(key) for key in KEYS} == KEYS
