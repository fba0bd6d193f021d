"""Pages of decks: what they hold, that texts in them are inert, and that a deck that cannot be drawn harms nothing."""

import re
import shutil
from pathlib import Path

import pytest

from tasks.flyte.decorators import Logic, step
from tasks.flyte.inputs import Artifact, StoreHandle
from tasks.report.deck import draw_deck
from tasks.report.step import draw_page
from tasks.store import ArtifactRef, Store
from tasks.store.tables import PROMPTS, ROLLOUTS, VERDICTS
from tasks.verify.step import Tally
from tests.cli.synthetic import write
from tests.report.pages import assert_self_contained, words
from tests.report.synthetic import PROMPTS_SETTINGS, SyntheticRun, history_of, make_run
from tests.report.test_ledger import Interrupted
from tests.report.test_page_in_browser import assert_fits


@pytest.fixture
def copy(mu_grpo: SyntheticRun, tmp_path: Path) -> Store:
    """A store that may be damaged."""
    shutil.copytree(mu_grpo.store.root, tmp_path / "copy")
    return Store.open(tmp_path / "copy")


def page_of(store: Store, ref: ArtifactRef, started: float = 0.0) -> str:
    (page,) = draw_deck(store, ref, started).values()
    return page


def test_a_warning_of_rollouts_stands_in_the_deck_of_their_verdicts(store: Store) -> None:
    warning = "stage 1 generate: 100.0 % of 4 responses end at the <limit>"
    rolled = write(store, "rollouts", {"rollouts.parquet": ([], ROLLOUTS)}, responses=4, warning=warning)
    files = {"verdicts.parquet": ([{"outcome": "wrong", "reward": -1.5}], VERDICTS)}
    judged = write(store, "verdicts", files, parents={"rollouts": [rolled]}, **Tally().facts())
    told = rf"Rollouts artifact seconds responses warning {rolled} [\d.]+ 4 {re.escape(warning)}"
    assert re.search(rf"{told}.* outcome reward extracted wrong -1.5 ", words(page_of(store, judged)))
    assert f"Warning {warning}" in words(page_of(store, rolled))


def test_the_time_of_a_step_has_its_earlier_attempts(tmp_path: Path) -> None:
    """The phases are those of all attempts: load 0.5, logp 1.5 and optimize 14 seconds, and 0.5 in no phase."""
    run = make_run(tmp_path, 1, Interrupted)
    text = words(page_of(run.store, run.policy))
    assert "Made in 16.5 s" in text
    assert "load 0.5 s logp 1.5 s optimize 14.0 s rest 0.5 s" in text
    assert f"policy {run.policy.digest} optimize 16.5" in words(draw_page(run.store, history_of(run))[0])


def test_prompts_are_shown_with_every_shard(store: Store) -> None:
    long = 5_000 * '"'
    rows = [
        {"prompt_id": f"{place}", "prompt": f"</td><script>{place}</script>{long}", "answer": long}
        | {"level": place, "chat": False}
        for place in range(30)
    ]
    tables = [{"prompts.parquet": (rows[place : place + 2], PROMPTS)} for place in range(0, 30, 2)]
    shards = [write(store, "prompts", table, PROMPTS_SETTINGS, stage=0, prompts=2) for table in tables]
    (page,) = draw_deck(store, shards, 0.0).values()
    text = words(page)
    assert "Artifacts, the first 12 of 15" in text
    assert "and 14 more" in text
    assert [ref.digest in text for ref in shards] == [True] * 12 + [False] * 3
    assert len(page.encode()) < 200_000
    assert "&lt;/td&gt;&lt;script&gt;1&lt;/script&gt;" in page
    assert_self_contained(page)


def test_a_report_is_its_own_deck(mu_grpo: SyntheticRun, mu_grpo_report: ArtifactRef, page: str) -> None:
    pages = draw_deck(mu_grpo.store, mu_grpo_report, 0.0)
    assert list(pages) == ["report", "artifact"]
    assert pages["report"] == page
    assert "algorithm mu_grpo accuracy 0.3375, 0.6375" in words(pages["artifact"])


def test_a_deck_loads_nothing_from_the_network(copy: Store, mu_grpo: SyntheticRun) -> None:
    """What is not on this machine, as of an artifact that was found on S3, is left out."""
    (copy.root / mu_grpo.policy.folder / "metrics.parquet").unlink()
    page = page_of(copy, mu_grpo.policy)
    assert mu_grpo.policy.digest in page
    assert "<svg" not in page


@step("1")
def broken(store: StoreHandle, policy: Artifact, file: str) -> Logic[Artifact]:
    """A step one of whose files is damaged as soon as it is made."""

    def make(store: Store, policy: ArtifactRef, file: str) -> ArtifactRef:
        (store.root / policy.folder / file).write_bytes(b"PAR1 is not all of it")
        return policy

    return make


@pytest.mark.parametrize("file", ["metrics.parquet", "manifest.json"])
def test_a_step_succeeds_although_its_deck_cannot_be_drawn(
    copy: Store, mu_grpo: SyntheticRun, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert broken(store=copy.ref, policy=mu_grpo.policy, file=file).digest == mu_grpo.policy.digest
    assert "broken: no deck, because it could not be drawn: " in capsys.readouterr().out


def test_a_browser_shows_it(mu_grpo: SyntheticRun, tmp_path: Path) -> None:
    deck = page_of(mu_grpo.store, mu_grpo.policy)
    page = f'<!doctype html><meta charset="utf-8"><body style="margin: 0">{deck}</body>'
    assert_fits(page, tmp_path, figures=2, widths=(1280, 500), least=(300, 80))
