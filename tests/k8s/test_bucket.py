"""The bucket's policies and lifecycle, on a server that enforces them."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from botocore.exceptions import ClientError

from tasks.artifacts import Store
from tasks.artifacts.work import once
from tasks.prompts.files import read_rows
from tasks.prompts.sources import source_files
from tasks.settings import SourceSettings
from tests.cache_versions import ROOT
from tests.faults.guarded import Guarded, act_as
from tests.faults.steps import Step
from tests.s3 import server

FOLDER, BUCKET = ROOT / "k8s/storage", "mu-grpo"


@pytest.fixture(scope="module")
def guarded() -> Iterator[Guarded]:
    with server() as running:
        client = running.client()
        client.create_bucket(Bucket=BUCKET)
        client.put_object(Bucket=BUCKET, Key="prompts/a.jsonl", Body=b'{"prompt": "1+1", "answer": "2"}\n')
        yield Guarded(running)


def statements(name: str) -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads((FOLDER / name).read_text())["Statement"]
    return found


def test_steps_may_do_what_they_do_and_no_more(
    guarded: Guarded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    act_as(guarded.s3.environment(tmp_path / "cache"), monkeypatch)
    _, keys = guarded.user(*statements("policy-steps.json"))
    act_as(keys, monkeypatch)
    client = guarded.s3.client(
        aws_access_key_id=keys["AWS_ACCESS_KEY_ID"], aws_secret_access_key=keys["AWS_SECRET_ACCESS_KEY"]
    )
    with guarded.asking():
        store = Store.open(f"s3://{BUCKET}/runs")
        made = once(store.ref, "step", "1", Step())
        assert store.manifests(made.kind)
        store.sweep()
        source = SourceSettings(path=f"s3://{BUCKET}/prompts/a.jsonl")
        with source_files(source, "prompts.path") as files:
            assert len(read_rows(files, source)[0]) == 1
        client.put_object(Bucket=BUCKET, Key="flyte/data/outputs.pb", Body=b"")
        for key in ("prompts/a.jsonl", "policies/model.safetensors", "other"):
            with pytest.raises(ClientError, match="AccessDenied"):
                client.put_object(Bucket=BUCKET, Key=key, Body=b"")
        with pytest.raises(ClientError, match="AccessDenied"):
            client.delete_object(Bucket=BUCKET, Key="prompts/a.jsonl")


def test_flyte_never_touches_runs_and_readers_never_write(guarded: Guarded) -> None:
    guarded.s3.client().put_object(Bucket=BUCKET, Key="runs/report", Body=b"")
    allowed = {
        "policy-flyte.json": {("get", "flyte/x"), ("put", "flyte/x")},
        "policy-readers.json": {("get", "flyte/x"), ("get", "runs/report")},
    }
    guarded.s3.client().put_object(Bucket=BUCKET, Key="flyte/x", Body=b"")
    for policy, may in allowed.items():
        _, keys = guarded.user(*statements(policy))
        client = guarded.s3.client(
            aws_access_key_id=keys["AWS_ACCESS_KEY_ID"], aws_secret_access_key=keys["AWS_SECRET_ACCESS_KEY"]
        )
        done = set()
        with guarded.asking():
            for key in ("flyte/x", "runs/report"):
                for what, call in (("get", client.get_object), ("put", client.put_object)):
                    try:
                        call(Bucket=BUCKET, Key=key)
                        done.add((what, key))
                    except ClientError as error:
                        if error.response["Error"]["Code"] != "AccessDenied":
                            raise
        assert done == may, policy


def test_what_runs_made_never_expires(guarded: Guarded) -> None:
    client = guarded.s3.client()
    wanted = json.loads((FOLDER / "lifecycle.json").read_text())
    client.put_bucket_lifecycle_configuration(Bucket=BUCKET, LifecycleConfiguration=wanted)
    rules = client.get_bucket_lifecycle_configuration(Bucket=BUCKET)["Rules"]
    assert any("AbortIncompleteMultipartUpload" in rule for rule in rules)
    expiring = [rule["Filter"]["Prefix"] for rule in rules if "Expiration" in rule]
    assert expiring == ["flyte/"]
