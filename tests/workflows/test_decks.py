"""The decks that a run leaves: one of every task, with what it made."""

import html
import re
from functools import partial
from pathlib import Path

from flytekit import map_task

from tasks.flyte.inputs import RolloutInputs
from tasks.flyte.tasks import generate
from tasks.settings import RolloutSettings
from tasks.store import ArtifactRef, Store
from tasks.store.records import Manifest
from tests.workflows.runs import Finished, assert_succeeded
from tests.workflows.test_retry import pod_of
from tools.forked import Runner


def decks_of(runner: Runner, folder: str = "tmp") -> list[str]:
    """Every deck that was written, Flyte's frame around it included."""
    return [path.read_text() for path in (runner.folder / folder).rglob("deck.html")]


def words(deck: str) -> str:
    text = re.sub("<style>.*?</style>|<script>.*?</script>", " ", deck, flags=re.DOTALL)
    return " ".join(html.unescape(re.sub("<[^>]*>", " ", text)).split())


def tabs(deck: str) -> list[str]:
    return re.findall(r"<li onclick[^>]*>([^<]*)</li>", deck)


def deck_of(decks: list[str], manifest: Manifest) -> str:
    """The one that tells of an artifact."""
    (found,) = {deck for deck in decks if re.search(rf"<td[^>]*>{manifest.digest}</td>", deck)}
    return found


def test_every_task_shows_what_it_made(finished: Finished) -> None:
    store, decks = Store.open(finished.pristine), decks_of(finished.runner, "decks")
    kinds = ("prompts", "policy", "verdicts", "average", "report")
    for manifest in (one for kind in kinds for one in store.manifests(kind)):
        if "benchmark" in manifest.facts:
            continue  # A map task has no deck on this machine.
        deck = deck_of(decks, manifest)
        assert tabs(deck) == (["report", "artifact"] if manifest.kind == "report" else [manifest.task])
        text = words(deck)
        assert f"step {manifest.task}, version {manifest.code_version}" in text
        assert "Made in " in text
        for phase in manifest.timings.phases:
            assert re.search(rf" {phase.replace('_', ' ')} \d+\.\d s ", text), phase
        for refs in manifest.parents.values():
            assert str(refs[0]) in text
        if manifest.kind != "report":
            assert len(deck.encode()) < 150_000
        assert "Source Code" not in deck


def test_a_shard_in_a_pod_shows_what_it_made(finished: Finished, tmp_path: Path) -> None:
    """As the pod of a map task runs it, which by itself writes no deck."""
    store = Store.open(finished.pristine)
    shard = store.manifests("rollouts")[-1]
    inputs = RolloutInputs(store=store.ref, seed=shard.seed, settings=RolloutSettings.parse(shard.settings))
    same = {"inputs": inputs, "policy": shard.parents["policy"][0], "stage": shard.facts["stage"]}
    prompts = [ArtifactRef(kind="prompts", digest="0" * 64), shard.parents["prompts"][0]]
    start = pod_of(map_task(partial(generate, **same)), {**same, "prompts": prompts}, tmp_path)
    assert_succeeded(start(0, BATCH_JOB_ARRAY_INDEX_VAR_NAME="AT", AT="1").end())
    assert (tmp_path / "outputs-0/outputs.pb").is_file()
    text = words((tmp_path / "outputs-0/deck.html").read_text())
    assert shard.digest in text
    assert "Found in the store. Made in" in text
    assert "First rows of rollouts.parquet prompt_id prompt answer finish_reason response" in text
    assert "responses_per_prompt 8" in text
