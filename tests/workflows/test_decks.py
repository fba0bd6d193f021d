"""The decks that a run leaves: one of every task, with what it made."""

import re

from tasks.store import Store
from tasks.store.records import Manifest
from tests.report.pages import words
from tests.workflows.runs import Finished
from tools.forked import Runner


def decks_of(runner: Runner, folder: str = "tmp") -> list[str]:
    """Every deck that was written, Flyte's frame around it included."""
    return [path.read_text() for path in (runner.folder / folder).rglob("deck.html")]


def tabs(deck: str) -> list[str]:
    return re.findall(r"<li onclick[^>]*>([^<]*)</li>", deck)


def deck_of(decks: list[str], manifest: Manifest) -> str:
    (found,) = {deck for deck in decks if re.search(rf"<td[^>]*>{manifest.digest}</td>", deck)}
    return found


def test_every_task_shows_what_it_made(finished: Finished) -> None:
    store, decks = Store.open(finished.pristine), decks_of(finished.runner, "decks")
    kinds = ("prompts", "policy", "verdicts", "average", "report")
    for manifest in (one for kind in kinds for one in store.manifests(kind)):
        if "benchmark" in manifest.facts:
            continue  # A map task has no deck on this machine; test_retry.py has one of a pod.
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
