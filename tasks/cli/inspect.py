"""The command inspect: shows responses of a stage."""

from collections import defaultdict
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
import pyarrow as pa
from rich import box
from rich.console import Group
from rich.markup import escape
from rich.table import Table

from tasks.errors import DataError, SettingsError
from tasks.formats import first_names
from tasks.settings import OptimizeSettings
from tasks.store import Store
from tasks.store.layout import ROLLOUTS_FILE, VERDICTS_FILE
from tasks.store.records import Manifest
from tasks.store.tables import read_table
from tasks.stored.runs import find_artifact, find_reports, run_of
from tasks.stored.unfinished import Responses, find_unfinished

_ROW = ["prompt_id", "sample_index"]
_TEXTS = [*_ROW, "prompt", "answer", "response"]
_COLUMNS = [*_TEXTS, "prompt_token_ids", "response_token_ids", "engine_logp", "finish_reason", "policy"]
_NONE = "-"


@dataclass(frozen=True)
class Chosen:
    """The choice of the responses that are shown."""

    prompt: str | None = None
    """Only the group of this prompt_id."""
    outcome: str | None = None
    """Only responses with this outcome."""
    groups: int = 3
    every: bool = False
    """All responses of a group instead of the best and the worst one."""


def inspect_run(store: Store, report: str, stage: int, chosen: Chosen) -> Group:
    """Return tables of some groups of a stage of the run with a report, named as ``report/digest``.

    Raises:
        DataError: there is no such report, stage, prompt or outcome.
    """
    found = find_artifact(store, report)
    if found.kind != "report":
        raise DataError(f"{found}: names no run; allowed: an artifact of kind report.")
    return _groups(store, _responses_of_run(store, store.manifest(found), stage), chosen)


def inspect_stage(store: Store, stage: int, seed: int | None, algorithm: str | None, chosen: Chosen) -> Group:
    """Return tables of some groups of a stage of the latest run, finished or not: responses, the best first.

    Stages count from 1.

    Raises:
        DataError: there is no such run, stage, prompt or outcome.
    """
    stages = ((run.latest, found) for run in find_unfinished(store, seed, algorithm) if (found := run.stage(stage)))
    latest, responses = next(stages, (0.0, None))
    try:
        report = find_reports(store, seed, algorithm)[0]
    except DataError:
        if responses is None:
            raise
        return _groups(store, responses, chosen)
    if responses is None or latest <= report.timings.finished:
        responses = _responses_of_run(store, report, stage)
    return _groups(store, responses, chosen)


def _responses_of_run(store: Store, report: Manifest, stage: int) -> Responses:
    evaluated = run_of(store, report).evaluated_policies(report)
    policy = next((policy for policy in evaluated if policy.known_facts["stage"] == stage), None)
    if policy is None:
        raise DataError(f"stage {stage}: not in the run with {len(evaluated) - 1} stages.")
    own = report.settings.get("optimize")
    if own and stage > report.known_facts.get("trained_from", 0):
        # Another run may have made the same policy with other settings.
        policy = policy.model_copy(update={"settings": own})
    return Responses.of_policy(f"stage {stage}", policy)


def _read_rows(store: Store, responses: Responses) -> list[dict[str, Any]]:
    """Return responses with verdicts and advantages; what is not known is None."""
    settings = _stored_settings(responses.policy) if responses.policy else None
    rollouts = pa.concat_tables(
        [read_table(folder / ROLLOUTS_FILE, _COLUMNS) for folder in store.paths(responses.rollouts)]
    )
    judged: list[dict[str, Any]] = [{"outcome": None, "reward": None}] * rollouts.num_rows
    found: list[float | None] = [None] * rollouts.num_rows
    if responses.verdicts is not None:
        verdicts = read_table(store.path(responses.verdicts) / VERDICTS_FILE)
        if rollouts.select(_ROW).to_pylist() != verdicts.select(_ROW).to_pylist():
            raise DataError(
                f"verdicts name {verdicts.num_rows} responses and rollouts {rollouts.num_rows}, or in another order: "
                "verify again."
            )
        judged = verdicts.select(["outcome", "reward"]).to_pylist()
        if responses.policy and settings:
            found = _advantages(store, responses, responses.policy, settings, rollouts, verdicts)
    # Token ids and log-probabilities stay Arrow's: only those of shown responses become Python's.
    columns = {name: rollouts[name] for name in ("response_token_ids", "engine_logp")}
    return [
        {**row, **dict(zip(columns, lists, strict=True)), **verdict, "advantage": advantage}
        for row, verdict, advantage, *lists in zip(
            rollouts.select(_TEXTS).to_pylist(), judged, found, *columns.values(), strict=True
        )
    ]


def _stored_settings(policy: Manifest) -> OptimizeSettings | None:
    """Return the settings of the updates that made a policy; None when this code does not know them."""
    own = {name: value for name, value in policy.settings.items() if name in OptimizeSettings.model_fields}
    try:
        return OptimizeSettings.parse(own)
    except SettingsError:
        return None


def _advantages(
    store: Store,
    responses: Responses,
    policy: Manifest,
    settings: OptimizeSettings,
    rollouts: pa.Table,
    verdicts: pa.Table,
) -> list[float | None]:
    """Return the advantages from which a policy learned; None for a response that took no part in the updates.

    The trainer may leave out more: responses whose log-probabilities by the trainer are not finite.
    """
    from tasks.train.advantages import select  # torch takes seconds to load.
    from tasks.train.batches import collect
    from tasks.train.scoring import finite_responses

    found: list[float | None] = []
    start, updates = 0, store.manifest(policy.parents["policy"][0]).known_facts["updates"]
    sampling = store.manifest(responses.rollouts[0]).settings
    # An alternating stage has a policy for every refresh, named "digest+updates", and each learns by itself.
    for sampler, rows in groupby(rollouts["policy"].to_pylist()):
        count = sum(1 for _ in rows)
        part = rollouts.slice(start, count)
        judged = verdicts.slice(start, count)
        start += count
        batch = collect([part], [judged], sampling["responses_per_prompt"])
        before = int(sampler.partition("+")[2] or updates)
        selection = select(
            batch,
            settings,
            sampling["max_new_tokens"],
            ~finite_responses(np.asarray(batch.engine_logp.flat, dtype=np.float32), batch),
            (policy.seed, policy.facts["stage"] - 1, before),
        )
        pairs = zip(selection.advantage_R.tolist(), selection.takes_part_R.tolist(), strict=True)
        found += [advantage if takes_part else None for advantage, takes_part in pairs]
    return found


def _groups(store: Store, responses: Responses, chosen: Chosen) -> Group:
    rows = _read_rows(store, responses)
    whole: dict[str, list[dict[str, Any]]] = defaultdict(list)
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        whole[row["prompt_id"]].append(row)
        if chosen.prompt in (None, row["prompt_id"]) and chosen.outcome in (None, row["outcome"]):
            groups[row["prompt_id"]].append(row)
    if not groups:
        conditions = (("prompt", chosen.prompt), ("outcome", chosen.outcome))
        wanted = " and ".join(f"{name} {value!r}" for name, value in conditions if value is not None)
        outcomes = ", ".join(sorted({row["outcome"] or "none" for row in rows}))
        here = f"prompts here: {first_names(list(whole), 3)}; outcomes here: {outcomes}"
        raise DataError(f"{responses.title}: no response with {wanted}; {here}.")
    # Groups with both better and worse responses are those that are learned from.
    order = sorted(groups, key=lambda name: -float(np.std([row["reward"] or 0.0 for row in groups[name]])))
    shown = "" if chosen.every else ". Of each group the best and the worst one; --all shows every one"
    return Group(
        *(_table(groups[name], whole[name], chosen.every) for name in order[: chosen.groups]),
        f"{len(groups)} groups, {len(rows)} responses in {responses.title}; "
        f"{_describe_learner(responses.policy)}{shown}",
    )


def _describe_learner(policy: Manifest | None) -> str:
    if policy is None:
        return "no policy has learned from them"
    if _stored_settings(policy) is None:
        return f"advantages unknown: the settings of {policy.ref} are not those of this code"
    return f"advantages as {policy.ref} ({policy.settings['preset']}) learned from them"


def _table(rows: list[dict[str, Any]], group: list[dict[str, Any]], every: bool) -> Table:
    first = rows[0]
    correct = sum(row["outcome"] == "correct" for row in group)
    title = f"{first['prompt']}   (answer {first['answer']}; {correct} of {len(group)} correct)"
    table = Table(box=box.SIMPLE_HEAD, title=escape(title), title_justify="left", pad_edge=False, padding=(0, 1, 0, 0))
    for name in ("sample", "outcome", "reward", "advantage", "tokens", "mean\nlogp", "min\nlogp"):
        table.add_column(name, justify="left" if name == "outcome" else "right", no_wrap=True)
    table.add_column("response", overflow="fold")
    order = sorted(rows, key=lambda row: (-(row["reward"] or 0.0), -(row["advantage"] or 0.0), row["sample_index"]))
    for row in order if every else [order[0], *order[1:][-1:]]:
        logp = row["engine_logp"].as_py()
        table.add_row(
            str(row["sample_index"]),
            row["outcome"] or _NONE,
            _NONE if row["reward"] is None else f"{row['reward']:g}",
            _NONE if row["advantage"] is None else f"{row['advantage']:+.3f}",
            str(len(row["response_token_ids"])),
            *((f"{np.mean(logp):.3f}", f"{np.min(logp):.3f}") if logp else (_NONE, _NONE)),
            escape(row["response"]),
        )
    return table
