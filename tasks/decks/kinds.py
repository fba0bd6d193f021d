"""What is looked at of an artifact, by its kind."""

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from safetensors import safe_open

from tasks.artifacts.records import Kind, Manifest
from tasks.artifacts.tables import read_table
from tasks.decks.charts import curve, histogram
from tasks.decks.contents import Contents, Shelf, Table
from tasks.decks.measured import average_contents, evaluation_contents
from tasks.report.examples import Example, Response, shown
from tasks.report.formats import label, number, percent, percent_range, tiny
from tasks.report.updates import number_columns

_CURVES = {
    "reward": True,
    "response_tokens": True,
    "loss": False,
    "grad_norm": True,
    "clip_fraction": True,
    "veto_fraction": True,
    "zero_advantage_share": True,
    "ess": True,
    "kl_k3": True,
    "entropy": True,
    "ratio_max_negative": False,
    "ratio_p01_negative": False,
}
"""Metrics of the updates (docs/metrics.md), and whether their axes start at zero."""
_SHAPE = (
    "model_type",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "vocab_size",
    "max_position_embeddings",
)
"""Of a model's config.json."""
_SHOWN, _SEARCHED = 5, 512
"""Prompts and responses that are shown, and responses among which an example of every outcome is looked for."""


def contents_of(shelf: Shelf) -> Contents:
    """What is looked at of artifacts of one kind."""
    return _OF_KIND[shelf.manifests[0].kind](shelf)


def _prompts(shelf: Shelf) -> Contents:
    made = Contents()
    prompts = sum(manifest.facts["prompts"] for manifest in shelf.manifests)
    facts = shelf.manifests[0].facts
    made.tiles = {"Prompts": number(prompts), "Shards": number(len(shelf.manifests))}
    if "overlapping" in facts:
        made.tiles = {"Prompts": number(prompts), "Rows": number(facts["rows"])}
        left_out = {"unusable": facts["unusable"], "held out": facts["held_out"]}
        made.count(
            "rows that are left out", left_out | {f"asked by {name}": n for name, n in facts["overlapping"].items()}
        )
    tables = [read_table(path) for name in ("prompts.parquet", "training.parquet") for path in shelf.files(name)]
    levels = Counter(level for table in tables for level in table["level"].to_pylist() if level is not None)
    made.count("prompts by level", {f"level {level}": count for level, count in sorted(levels.items())})
    for table in tables[:1]:
        rows = table.slice(0, _SHOWN).to_pylist()
        texts = [[shown(str(row[name])) for name in ("prompt_id", "prompt", "answer")] for row in rows]
        made.tables.append(Table("The first prompts", ["prompt_id", "prompt", "answer"], texts))
    return made


def _policy(shelf: Shelf) -> Contents:
    (manifest,) = shelf.manifests
    facts = manifest.facts
    made = Contents(tiles={"Finished stages": number(facts["stage"]), "Updates": number(facts["updates"])})
    _fact(made, "Log-prob mismatch", facts.get("logp_mismatch"), tiny)
    _fact(made, "Warm start's cross-entropy", facts.get("warm_start_cross_entropy"), lambda one: number(one, 3))
    if "groups" in facts:
        made.tiles["Zero-variance groups"] = f"{number(facts['zero_variance_groups'])} of {number(facts['groups'])}"
        _fact(made, "Unscored", facts["unscored"], number)
        _fact(made, "Dropped", facts.get("dropped"), number)
    if parameters := sum(_parameters(path) for path in _weights(shelf, manifest)):
        made.tiles["Parameters"] = number(parameters)
    _draw_updates(made, shelf)
    if path := shelf.file(manifest, "config.json"):
        config = json.loads(path.read_text())
        shape = [[label(name), str(config[name])] for name in _SHAPE if name in config]
        made.tables.append(Table("Shape", ["", ""], shape))
    return made


def _weights(shelf: Shelf, manifest: Manifest) -> list[Path]:
    names = [name for name in manifest.files if name.endswith(".safetensors") and "/" not in name]
    return [path for name in names if (path := shelf.file(manifest, name))]


def _parameters(path: Path) -> int:
    """Read from the file's header alone."""
    with safe_open(path, framework="numpy") as file:
        return sum(math.prod(file.get_slice(name).get_shape()) for name in file.keys())  # noqa: SIM118 - no mapping


def _draw_updates(made: Contents, shelf: Shelf) -> None:
    for path in shelf.files("metrics.parquet"):
        columns = number_columns([read_table(path)])
        drawn = [
            curve(name, columns["update"], columns[name], from_zero)
            for name, from_zero in _CURVES.items()
            if name in columns
        ]
        made.curves += [one for one in drawn if one is not None]


def _rollouts(shelf: Shelf) -> Contents:
    made = Contents()
    facts = [manifest.facts for manifest in shelf.manifests]
    responses = sum(one.get("responses", 0) for one in facts)
    missing = sum(one.get("missing", 0) for one in facts)
    made.tiles = {"Responses": number(responses), "Shards": number(len(facts)), "Missing": number(missing)}
    reasons: Counter[str] = Counter()
    lengths = [np.zeros(0, np.int32)]
    for path in shelf.files("rollouts.parquet"):
        for batch in _batches(path, ["finish_reason", "response_token_ids"]):
            reasons.update(batch["finish_reason"].to_pylist())
            lengths.append(pc.list_value_length(batch["response_token_ids"]).to_numpy())
    made.count("responses by finish reason", dict(reasons.most_common()))
    made.count("responses by tokens", histogram(np.concatenate(lengths)))
    rows = [
        [
            str(manifest.ref),
            number(one.get("responses")),
            number(one.get("response_tokens")),
            percent(one.get("truncated")),
            number(one.get("tokens_per_second")),
            number(manifest.timings.seconds),
        ]
        for manifest, one in zip(shelf.manifests, facts, strict=True)
    ]
    headings = ["shard", "responses", "mean tokens", "truncated", "tokens per second", "seconds"]
    made.tables.append(Table.of_first("Shards", headings, rows))
    made.warn(facts)
    return made


def _batches(path: Path, columns: list[str]) -> Iterator[pa.RecordBatch]:
    """Portions of a long table: the token ids of a large shard are gigabytes."""
    with pq.ParquetFile(path) as file:
        yield from file.iter_batches(batch_size=_SEARCHED, columns=columns)


def _verdicts(shelf: Shelf) -> Contents:
    """Those of a stage, and the rollouts that they are on: Flyte shows no decks of map tasks."""
    (manifest,) = shelf.manifests
    facts = manifest.facts
    made = Contents(
        tiles={
            "Responses": number(facts["responses"]),
            "Mean reward": number(facts["reward"], 3),
            "Truncated": percent(facts["truncated"]),
            "Show working": percent(facts["working"]),
            "Mean tokens": number(facts["response_tokens"]),
        }
    )
    made.count("responses by outcome", {label(name): count for name, count in facts["outcomes"].items()})
    rollouts = shelf.parents("rollouts")
    sampled = _rollouts(rollouts)
    made.bars |= sampled.bars
    made.tables = sampled.tables
    first = rollouts.file(rollouts.manifests[0], "rollouts.parquet")
    for path in shelf.files("verdicts.parquet"):
        made.examples = _of_every_outcome(path, first) if first else []
    return made


def _of_every_outcome(judged: Path, sampled: Path) -> list[Example]:
    """The first response with every outcome, among the first ones; verdicts are in the order of the rollouts."""
    columns = ["prompt", "answer", "response", "response_token_ids"]
    rows = [row for batch in islice(_batches(sampled, columns), 1) for row in batch.to_pylist()]
    outcomes = [row["outcome"] for batch in islice(_batches(judged, ["outcome"]), 1) for row in batch.to_pylist()]
    found: dict[str, Example] = {}
    for row, outcome in zip(rows, outcomes, strict=False):
        if outcome not in found:
            response = Response(shown(row["response"]), outcome, len(row["response_token_ids"]))
            found[outcome] = Example(label(outcome), shown(row["prompt"]), shown(row["answer"]), response, None)
    return list(found.values())


def _report(shelf: Shelf) -> Contents:
    (manifest,) = shelf.manifests
    pages = [path.read_text(encoding="utf-8") for path in shelf.files("report.html")]
    accuracy = manifest.facts["accuracy"]
    tiles = {"Algorithm": manifest.facts["algorithm"], "Accuracy": f"{percent(accuracy[0])} → {percent(accuracy[-1])}"}
    return Contents(tiles=tiles, page="".join(pages))


def _study(shelf: Shelf) -> Contents:
    (manifest,) = shelf.manifests
    facts = manifest.facts
    made = Contents(tiles={"Updates": number(facts["updates"]), "Accuracy": percent(facts["accuracy"])})
    made.tiles["Best accuracy"] = percent(facts["best"])
    if facts["stopped"]:
        made.tables.append(Table("Stopped", [""], [[facts["stopped"]]]))
    for path in shelf.files("curve.parquet"):
        columns = number_columns([read_table(path)])
        drawn = curve("held-out accuracy", columns["update"], columns["accuracy"], from_zero=True)
        made.curves += [drawn] if drawn else []
    _draw_updates(made, shelf)
    return made


def _laboratory(shelf: Shelf) -> Contents:
    made = Contents()
    for path in shelf.files("result.json"):
        result = json.loads(path.read_text(encoding="utf-8"))
        made.tiles = {name.title(): number(result[name]) for name in ("seeds", "updates", "problems")}
        rows = [
            [arm["name"], percent(arm["accuracy"]), percent_range(arm["low"], arm["high"]), number(arm["p"], 3)]
            for arm in result["arms"]
        ]
        made.tables.append(Table(result["title"], ["arm", "at the end", "95 %", "p"], rows))
    return made


def _reproduction(shelf: Shelf) -> Contents:
    (manifest,) = shelf.manifests
    pages = [path.read_text(encoding="utf-8") for path in shelf.files("report.html")]
    counted = {name.title(): number(len(manifest.facts[name])) for name in ("models", "systems", "seeds")}
    return Contents(tiles={"Runs": number(manifest.facts["runs"]), **counted}, page="".join(pages))


def _fact(made: Contents, title: str, value: Any, write: Callable[[Any], str]) -> None:
    """A tile, unless the artifact is of a time when nobody counted that."""
    if value is not None:
        made.tiles[title] = write(value)


_OF_KIND: dict[Kind, Callable[[Shelf], Contents]] = {
    "prompts": _prompts,
    "policy": _policy,
    "rollouts": _rollouts,
    "verdicts": _verdicts,
    "evaluation": evaluation_contents,
    "average": average_contents,
    "report": _report,
    "study": _study,
    "laboratory": _laboratory,
    "reproduction": _reproduction,
}
