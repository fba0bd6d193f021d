"""Responses as they were learned from: outcomes, advantages by hand, log-probabilities, and who is shown."""

import re
import shutil
from itertools import chain, pairwise
from statistics import mean, stdev

import pyarrow as pa
import pytest
from tokenizers import Tokenizer, models

from tasks.cli.inspect import ResponseFilter, inspect_run, inspect_stage
from tasks.errors import DataError
from tasks.formats import DASH
from tasks.store import Store
from tasks.store.layout import MANIFEST
from tests.cli.synthetic import REWARDS, Run, make_finished_run, plain, rows_of, run_command, run_refused, write
from tests.workflows.runs import words

EVERYTHING = ResponseFilter(groups=10, every=True)


def advantages(text: str) -> dict[tuple[int, int], str]:
    """What the table says, by group and sample."""
    found, group = {}, -1
    for line in text.splitlines():
        if title := re.match(r"\s*(\d)\+\[1\]=", line):
            group = int(title[1])
        if row := re.match(r"\s*(\d+)  (\w+|-) +(\S+) +(\S+) +(\d+) +(\S+) +(\S+)$", line):
            found[group, int(row[1])] = row[4]
    return found


def shown(store: Store, stage: int = 1, seed: int | None = None, chosen: ResponseFilter = EVERYTHING) -> str:
    return plain(inspect_stage(store, stage, seed, None, chosen))


def assert_advantages(found: dict[tuple[int, int], str], group: int, deviation: float) -> None:
    """The advantages of a group are its rewards less their mean, over a deviation."""
    rewards = REWARDS[group]
    numbers = [f"{(reward - mean(rewards)) / (deviation + 1e-6):+.3f}" for reward in rewards]
    assert [found[group, sample] for sample in range(len(rewards))] == numbers


def test_a_statistic_over_the_batch_takes_the_groups_of_all_shards(store: Store) -> None:
    make_finished_run(store, objective={"advantage": {"scale": "batch_std"}})
    for group in range(len(REWARDS)):
        assert_advantages(advantages(shown(store, 2)), group, stdev(chain(*REWARDS)))


def test_groups_that_take_no_part_have_no_advantage(store: Store) -> None:
    make_finished_run(store, objective={"data": {"zero_variance": "drop"}})
    found = advantages(shown(store))
    assert [found[2, sample] for sample in range(4)] == [DASH] * 4
    assert DASH not in [found[1, sample] for sample in range(4)]


def test_every_refresh_of_an_alternating_stage_is_a_batch_of_its_own(store: Store) -> None:
    run = Run(store, mu=1, objective={"advantage": {"scale": "batch_std"}}).base()
    groups = [rows_of(group, 0, f"{run.policies[0].digest}+{group // 2}", REWARDS[group]) for group in range(4)]
    run.judged(groups).optimize().end()
    found = advantages(shown(store))
    for group in range(4):
        assert_advantages(found, group, stdev(chain(*(REWARDS[:2] if group < 2 else REWARDS[2:]))))


def test_the_best_and_the_worst_are_shown_and_all_on_request(store: Store) -> None:
    make_finished_run(store)
    short = advantages(shown(store, chosen=ResponseFilter(groups=10)))
    assert set(short) == {(group, sample) for group in range(4) for sample in (0, 3)}
    text = shown(store, chosen=ResponseFilter(prompt="s0p0", every=True))
    pairs = pairwise(text.splitlines())
    rows = [line.split() for line, below in pairs if "stage 0 group 0 response " in below]
    by_sample = {row[0]: row[4:7] for row in rows}
    assert ("\x1b" in text, "\x9b" in text, "\N{SYMBOL FOR ESCAPE}\\x9b" in text) == (False, False, True)
    assert by_sample == {str(i): [str(i + 1), f"{-1 - i / 2:.3f}", f"{-i - 1:.3f}"] for i in range(4)}


def test_a_prompt_is_shown_as_the_policy_read_it(store: Store) -> None:
    tokenizer = Tokenizer(models.WordLevel({"<user>": 5, "1+1=": 6}, unk_token="<user>"))
    base = write(store, "policy", {"tokenizer.json": tokenizer.to_str()}, stage=0, updates=0)
    assert shown(Run(store, policies=[base]).sample().store).startswith("<user> 1+1=   (answer 2; ")


def test_prompts_and_outcomes_choose(store: Store) -> None:
    make_finished_run(store)
    text = shown(store, chosen=ResponseFilter(outcome="wrong", groups=10, every=True))
    assert "3 groups, 6 responses in stage 1, of 4 groups and 16 responses; " in words(text)
    wrong = advantages(text)
    assert set(wrong) == {(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (3, 3)}
    assert wrong[0, 1] == "-0.500"  # Still relative to the whole group.
    chosen = ResponseFilter(prompt="s0p1")
    assert {group for group, _ in advantages(plain(inspect_stage(store, 1, 0, "grpo", chosen)))} == {1}
    with pytest.raises(DataError, match=r"no response with prompt 'x' and outcome 'wrong'; prompts here: s0p0, "):
        inspect_stage(store, 1, None, None, ResponseFilter(prompt="x", outcome="wrong"))
    with pytest.raises(DataError, match="stage 3: the run has 2; allowed: 1 to 2"):
        inspect_stage(store, 3, None, None, ResponseFilter())


def test_a_run_is_named_by_its_report(store: Store) -> None:
    """Two runs of one algorithm and seed: the latest is not the only one that can be looked at."""
    first, second = (make_finished_run(store, stages=1, objective={"gate": {"high": high}}) for high in (1.2, 1.3))
    for run in (first, second):
        assert str(run.policies[1]) in plain(inspect_run(store, str(run.report)[:15], 1, EVERYTHING))
    manifest = store.root / second.policies[1].folder / MANIFEST
    manifest.write_text(manifest.read_text().replace('"grpo"', '"of another version"'))
    with pytest.raises(DataError, match=r"another version of the code wrote.*preset.*Start the run again with this"):
        inspect_run(store, str(second.report), 1, EVERYTHING)


def test_the_tokens_of_a_stage_are_not_in_memory_together(store: Store) -> None:
    run, pool = Run(store).base(), pa.proxy_memory_pool(default := pa.default_memory_pool())
    run.judged([rows_of(group, 0, run.policies[0].digest, [0.0, 1.0] * 500) for group in range(4)])
    pa.set_memory_pool(pool)
    shown(store, chosen=ResponseFilter())
    pa.set_memory_pool(default)
    assert pool.max_memory() < 12 * 2**20  # All tokens and log-probabilities are 15 MiB.


def test_an_unscored_response_and_an_empty_one_are_shown(store: Store) -> None:
    run = Run(store).base()
    rows, judged = rows_of(0, 0, run.policies[0].digest, [1.0, None, 0.0, 0.0])
    rows[2].update(response_token_ids=[], engine_logp=[])
    run.judged([(rows, judged)]).optimize().end()
    lines = {words[0]: words[1:] for line in shown(store).splitlines() if len(words := line.split()) == 7}
    assert list(lines)[1:] == ["0", "2", "3", "1"]
    assert lines["1"][:3] == ["timeout", DASH, "+0.000"]
    assert lines["2"] == ["wrong", "0", "-0.577", "0", DASH, DASH]


def test_a_response_without_a_reward_is_neither_the_best_nor_the_worst(store: Store) -> None:
    run = Run(store).base()
    groups = [rows_of(group, 0, run.policies[0].digest, [None, -9.0, -9.0 - group, None]) for group in range(2)]
    run.judged(groups).optimize().end()
    assert list(advantages(shown(store, chosen=ResponseFilter()))) == [(1, 1), (1, 2), (0, 1), (0, 2)]
    assert list(advantages(shown(store, chosen=ResponseFilter(groups=1, outcome="timeout")))) == [(0, 0), (0, 3)]


def test_the_command_shows_a_stage_of_a_store_on_s3(bucket: str) -> None:
    run = make_finished_run(Store.open(f"{bucket}/prefix"), stages=1)
    where = ["--store", f"{bucket}/prefix"]
    assert len(advantages(run_command("inspect", *where, "--all", "--groups", "9"))) == 16
    assert "names no run; allowed: report/digest" in run_refused("inspect", str(run.policies[0]), *where)
    assert "allowed: the report alone" in run_refused("inspect", str(run.report), *where, "--seed", "1")


def test_a_run_without_a_report_has_advantages_where_it_was_trained(store: Store) -> None:
    """Nothing could be learned from its second stage, as after the error that every advantage is 0."""
    run = Run(store).base().stage().sample()
    assert advantages(shown(store, 1))[0, 0] == "+1.500"
    told = "4 groups, 16 responses in stage 2 of a run that is not finished; no policy has been trained on them"
    assert told in shown(store, 2)
    assert advantages(shown(store, 2))[0, 0] == DASH
    shutil.rmtree(store.root / run.verdicts[1].folder)
    assert told in shown(store, 2)
    with pytest.raises(DataError, match="not finished; its last artifact is the rollouts of stage 2"):
        inspect_stage(store, 3, None, None, EVERYTHING)


def test_of_a_finished_and_an_unfinished_run_the_latest_is_shown(store: Store) -> None:
    finished = make_finished_run(store)
    rows = [rows_of(group, 0, finished.policies[0].digest, [0.5] * 4) for group in range(4)]
    stopped = Run(store, policies=finished.policies[:1]).judged(rows[:2], rows[2:], prompts=finished.prompts[0])
    assert re.search(r"(wrong|correct) +0\.5.*not finished", shown(store), re.DOTALL)
    shutil.rmtree(store.root / stopped.verdicts[0].folder)
    Run(store, seed=1).base().sample()
    finished.write("report", "report", {}, {"evaluations": finished.evaluations}, {"page": "again"}, algorithm="grpo")
    texts = shown(store), shown(store, seed=0), shown(store, 2)
    assert ["not finished" in text for text in texts] == [True, False, False]
    make_finished_run(store, seed=2)
    assert "not finished" not in shown(store)
    with pytest.raises(DataError, match="no finished run with seed 1, algorithm grpo"):
        inspect_stage(store, 2, 1, "grpo", EVERYTHING)
