"""Tables of the command ``inspect``, which shows the responses of a stage."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from tasks.errors import DataError
from tasks.formats import DASH, first_names, printable, visible
from tasks.report.examples import TOKENIZER, Decode, decoder
from tasks.store import Store
from tasks.store.layout import ROLLOUTS_FILE, VERDICTS_FILE
from tasks.store.records import Manifest
from tasks.store.tables import RESPONSE, read_table, stream_table
from tasks.stored.runs import find_artifact, run_lineage
from tasks.stored.unfinished import JudgedResponses, latest_run

_NAMED = [*RESPONSE, "finish_reason", "policy"]
_NUMBERS, _INDENT = "{:>6}  {:<15}  {:>8}  {:>9}  {:>6}  {:>9}  {:>8}", 8
"""Format of the numbers of a response, and the indent of the response itself."""
_SHOWN = [*RESPONSE, "prompt", "answer", "response", "prompt_token_ids", "response_token_ids", "engine_logp"]


@dataclass(frozen=True)
class ResponseFilter:
    """Filter for the responses of a stage that are shown."""

    prompt: str | None = None
    """Show only the group of this prompt_id."""
    outcome: str | None = None
    """Show only responses with this outcome."""
    groups: int = 3
    """Largest number of groups."""
    every: bool = False
    """Show all responses of a group, and not only the best and the worst one."""


def inspect_run(store: Store, report: str, stage: int, chosen: ResponseFilter) -> Group:
    """Return tables of groups of a stage, for the run whose report is named as ``report/digest``.

    Raises:
        DataError: the report, stage, prompt or outcome does not exist.
    """
    ref = find_artifact(store, report)
    if ref.kind != "report":
        raise DataError(f"{report}: names no run; allowed: report/digest; without it, the latest run is shown.")
    return _groups(store, _responses_of_run(store, store.manifest(ref), stage), chosen)


def inspect_stage(store: Store, stage: int, seed: int | None, algorithm: str | None, chosen: ResponseFilter) -> Group:
    """Return tables of groups of a stage, for the latest run, finished or not.

    The best responses of a group come first. Stages count from 1.

    Raises:
        DataError: the run, stage, prompt or outcome does not exist.
    """
    run = latest_run(store, seed, algorithm, f"stage {stage}", lambda run: run.stage(stage))
    responses = _responses_of_run(store, run, stage) if isinstance(run, Manifest) else run
    return _groups(store, responses, chosen)


def _responses_of_run(store: Store, report: Manifest, stage: int) -> JudgedResponses:
    evaluated = run_lineage(store, report).evaluated_policies(report)
    policy = next((policy for policy in evaluated if policy.known_facts["stage"] == stage), None)
    if policy is None:
        raise DataError(f"stage {stage}: the run has {len(evaluated) - 1}; allowed: 1 to {len(evaluated) - 1}.")
    optimize = report.settings.get("optimize")
    if optimize and stage > report.known_facts.get("trained_from", 0):
        # Another run with other settings may have made the same policy.
        policy = policy.model_copy(update={"settings": optimize})
    return JudgedResponses.of_policy(f"stage {stage}", policy)


def read_responses(store: Store, responses: JudgedResponses) -> list[dict[str, Any]]:
    """Return name, file, verdict and advantage of all responses; unknown values are None.

    Texts and tokens of a stage can be larger than the memory. They are read part by part, and of each part only what
    the advantages need is kept.
    """
    parts, paths = [], []
    for folder in store.paths(responses.rollouts):
        for table in stream_table(folder / ROLLOUTS_FILE, [*_NAMED, "response_token_ids", "engine_logp"]):
            lengths, finite = pc.list_value_length(table["response_token_ids"]), _finite(table["engine_logp"])
            parts.append(table.select(_NAMED).append_column("tokens", lengths).append_column("finite", [finite]))
            paths += [folder / ROLLOUTS_FILE] * table.num_rows
    rollouts = pa.concat_tables(parts)
    judged: list[dict[str, Any]] = [{"outcome": None, "reward": None}] * rollouts.num_rows
    advantages: list[float | None] = [None] * rollouts.num_rows
    named = rollouts.select(RESPONSE).to_pylist()
    if responses.verdicts is not None:
        verdicts = read_table(store.path(responses.verdicts) / VERDICTS_FILE)
        judged = verdicts.select(["outcome", "reward"]).to_pylist()
        if responses.policy:
            from tasks.train.scoring import trained_advantages  # torch takes seconds to load.

            (parent,) = responses.policy.parents["policy"]
            sampling = store.manifest(responses.rollouts[0]).settings
            updates = store.manifest(parent).known_facts["updates"]
            judged_rollouts = rollouts.append_column("reward", verdicts["reward"])
            advantages = trained_advantages(responses.policy, updates, sampling, judged_rollouts)
    return [
        {**row, **verdict, "advantage": advantage, "path": path}
        for row, verdict, advantage, path in zip(named, judged, advantages, paths, strict=True)
    ]


def _finite(lists: pa.ChunkedArray) -> pa.Array:
    """Return whether all values of each list are finite."""
    infinite = pc.invert(pc.is_finite(pc.list_flatten(lists)))
    rows = pc.list_parent_indices(lists.combine_chunks()).filter(infinite.combine_chunks())
    return pc.invert(pc.is_in(pa.array(range(len(lists))), rows.cast(pa.int64())))


def _with_texts(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return responses with their prompts, texts and tokens."""
    prompts = pa.array(sorted({row["prompt_id"] for row in rows}))
    texts = {
        (row["prompt_id"], row["sample_index"]): row
        for path in dict.fromkeys(row["path"] for row in rows)
        for table in stream_table(path, _SHOWN)
        for row in table.filter(pc.is_in(table["prompt_id"], prompts)).to_pylist()
    }
    return [{**texts[row["prompt_id"], row["sample_index"]], **row} for row in rows]


def _groups(store: Store, responses: JudgedResponses, chosen: ResponseFilter) -> Group:
    rows = read_responses(store, responses)
    all_groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    groups: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        all_groups[row["prompt_id"]].append(row)
        if chosen.prompt in (None, row["prompt_id"]) and chosen.outcome in (None, row["outcome"]):
            groups[row["prompt_id"]].append(row)
    if not groups:
        conditions = (("prompt", chosen.prompt), ("outcome", chosen.outcome))
        wanted = " and ".join(f"{name} {value!r}" for name, value in conditions if value is not None)
        outcomes = ", ".join(sorted({row["outcome"] or "none" for row in rows}))
        present = f"prompts here: {first_names(list(all_groups), 3)}; outcomes here: {outcomes}"
        raise DataError(f"{responses.title}: no response with {wanted}; {present}.")
    # The policy learns from groups whose rewards differ, so they come first.
    rewards = {name: [row["reward"] for row in some if row["reward"] is not None] for name, some in groups.items()}
    order = sorted(groups, key=lambda name: -float(np.std(rewards[name] or [0.0])))
    count = sum(map(len, groups.values()))
    policy = responses.policy
    learner = (
        f"advantages as in the training of {policy.ref} ({policy.settings['preset']})"
        if policy
        else "no policy has been trained on them"
    )
    sampler = store.manifest(store.manifest(responses.rollouts[0]).parents["policy"][0])
    decode = decoder(store, sampler) if TOKENIZER in sampler.files else lambda _: ""
    total = "" if count == len(rows) else f", of {len(all_groups)} groups and {len(rows)} responses"
    hint = "" if chosen.every else "; of each group only the best and the worst are shown, --all shows every response"
    return Group(
        *(_group(_with_texts(groups[name]), all_groups[name], chosen.every, decode) for name in order[: chosen.groups]),
        f"{len(groups)} groups, {count} responses in {responses.title}{total}; {learner}{hint}",
    )


def _group(rows: list[dict[str, Any]], group: list[dict[str, Any]], every: bool, decode: Decode) -> Group:
    """Return the prompt of a group, as the policy read it, and its responses, each below a line of its numbers."""
    first = rows[0]
    correct = sum(row["outcome"] == "correct" for row in group)
    prompt = decode(first["prompt_token_ids"]) or first["prompt"]
    title = f"{visible(prompt)}   (answer {printable(first['answer'])}; {correct} of {len(group)} correct)"
    headings = ("sample", "outcome", "reward", "advantage", "tokens", "mean logp", "min logp")
    parts: list[RenderableType] = [Text(title, "italic"), Text(_NUMBERS.format(*headings), "bold")]

    def place(row: dict[str, Any]) -> tuple[bool, float, float, int]:
        return row["reward"] is None, -(row["reward"] or 0.0), -(row["advantage"] or 0.0), row["sample_index"]

    order = sorted(rows, key=place)
    # A response without a reward is neither the best nor the worst.
    compared = [row for row in order if row["reward"] is not None] or order
    for row in order if every else [compared[0], *compared[1:][-1:]]:
        logp = row["engine_logp"]
        numbers = _NUMBERS.format(
            row["sample_index"],
            row["outcome"] or DASH,
            DASH if row["reward"] is None else f"{row['reward']:g}",
            DASH if row["advantage"] is None else f"{row['advantage']:+.3f}",
            len(row["response_token_ids"]),
            *((f"{np.mean(logp):.3f}", f"{np.min(logp):.3f}") if logp else (DASH, DASH)),
        )
        response = Text(visible(row["response"]) or "(empty)", overflow="fold")
        parts += [Text(numbers), Padding(response, (0, 0, 0, _INDENT), expand=False)]
    return Group(*parts, "")
