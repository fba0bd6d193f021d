"""Every number that follows from a run's settings, before anything runs."""

import json
import math
from pathlib import Path

from rich import box
from rich.markup import escape
from rich.table import Table

from tasks.cli.algorithms import describe
from tasks.errors import DataError
from tasks.report.formats import size
from tasks.settings import PRESETS, RunSettings, TinyPolicySettings

_FP32_BYTES = 4
_TINY_VOCABULARY = 22


def plan_tables(settings: RunSettings, stages: int) -> list[Table]:
    """Tables of the schedule, the objective and the memory of a run."""
    return [_schedule(settings, stages), _objective(settings), _memory(settings)]


def _table(title: str) -> Table:
    table = Table(title=title, box=box.SIMPLE_HEAD, show_header=False, title_justify="left", title_style="bold")
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(style="dim")
    return table


def _schedule(run: RunSettings, stages: int) -> Table:
    table = _table("schedule")
    prompts, group, update = (
        run.prompts.prompts_per_stage,
        run.rollout.responses_per_prompt,
        run.optimize.responses_per_update,
    )
    longest, k, mu = run.rollout.max_new_tokens, run.evaluate.samples_per_problem, run.mu
    responses, updates, problems = run.responses_per_stage, run.updates_per_stage, run.evaluate.problems
    rows: list[tuple[str, int | str, str]] = [
        ("stages", stages, "a constant of the workflow"),
        ("prompts per stage", prompts, f"{stages * prompts} in all"),
        ("responses per prompt", group, ""),
        ("responses per stage", responses, f"{prompts} x {group}; {stages * responses} in all"),
        ("tokens per stage, at most", responses * longest, f"{responses} x {longest}"),
        ("shards per stage", run.shards, f"of {run.prompts.prompts_per_shard} prompts"),
        ("responses per update", update, f"{update // group} groups of {group}"),
        ("updates per stage", updates, f"{responses} / {update}"),
        ("updates in all", stages * updates, f"{stages} x {updates}"),
        ("mu, updates per rollout", mu, "" if run.updates_per_rollout else "all updates of a stage"),
        ("rollout refreshes", stages * updates // mu, f"{stages * updates} / {mu}"),
        ("staleness", f"0 to {mu - 1}", f"mean {(mu - 1) / 2:g} updates"),
        ("evaluations", stages + 1, f"{problems} problems, avg@{k} and greedy"),
        ("evaluation responses", (stages + 1) * problems * (k + 1), f"{stages + 1} x {problems} x {k + 1}"),
    ]
    for name, value, how in rows:
        table.add_row(name, str(value), how)
    return table


def _objective(run: RunSettings) -> Table:
    table = Table(title="objective", box=box.SIMPLE_HEAD, show_header=False, title_justify="left", title_style="bold")
    table.add_column(no_wrap=True)
    table.add_column()
    preset = PRESETS[run.optimize.preset]
    modifier = "" if run.optimize.modifier == "none" else f" + {run.optimize.modifier}"
    table.add_row("preset", f"{run.optimize.preset}{modifier}   [dim]{preset.source}[/]")
    if preset.chosen:
        table.add_row("", f"[dim]chosen here: {preset.chosen}[/]")
    for name, value in describe(run.optimize.objective).items():
        table.add_row(name, escape(value))
    warmup = f"AdamW, {run.optimize.warmup_updates} warm-up updates"
    table.add_row("learning rate", f"{run.optimize.learning_rate:g}   [dim]{warmup}[/]")
    return table


def _memory(run: RunSettings) -> Table:
    table = _table("memory, estimated")
    shape = _shape(run)
    if shape is None:
        table.add_row("policy", "unknown", f"{run.policy.path} is not in a local folder yet")
        return table
    parameters, vocabulary, cache_per_token = shape
    weights = parameters * _FP32_BYTES
    chunk, rows, longest = run.optimize.logp_chunk_tokens, run.rollout.engine.batch_size, run.rollout.max_new_tokens
    table.add_row("policy", f"{parameters / 1e6:,.2f} M", "parameters, in fp32")
    table.add_row("weights", size(weights), "a checkpoint's model.safetensors")
    table.add_row("training state", size(4 * weights), "weights, gradients and AdamW's two moments")
    table.add_row(
        "logits of a chunk",
        size(2 * chunk * vocabulary * _FP32_BYTES),
        f"2 x {chunk} tokens x {vocabulary}",
    )
    table.add_row("KV cache", size(rows * longest * cache_per_token), f"{rows} responses x {longest} tokens")
    return table


def _shape(run: RunSettings) -> tuple[int, int, int] | None:
    """Parameters, vocabulary, and bytes of the KV cache per token."""
    if run.policy.tiny is not None:
        tiny = run.policy.tiny
        return (
            _tiny_parameters(tiny),
            _TINY_VOCABULARY,
            _cache_bytes(tiny.layers, tiny.key_value_heads, tiny.hidden_size // tiny.heads),
        )
    folder = Path(run.policy.path or "").expanduser()
    if not folder.is_dir():
        return None
    try:
        config = json.loads((folder / "config.json").read_text())
        parameters = sum(_safetensors_parameters(file) for file in folder.glob("*.safetensors"))
    except (OSError, ValueError) as error:
        raise DataError(f"policy.path: {folder} cannot be read: {error}") from None
    heads = config.get("num_attention_heads", 1)
    width = config.get("head_dim") or config.get("hidden_size", 0) // heads
    return (
        parameters,
        config.get("vocab_size", 0),
        _cache_bytes(config.get("num_hidden_layers", 0), config.get("num_key_value_heads", heads), width),
    )


def _tiny_parameters(tiny: TinyPolicySettings) -> int:
    hidden, width = tiny.hidden_size, tiny.hidden_size // tiny.heads
    attention = 2 * hidden * hidden + 2 * hidden * width * tiny.key_value_heads + 2 * width
    return (
        _TINY_VOCABULARY * hidden
        + hidden
        + tiny.layers * (attention + 3 * hidden * tiny.intermediate_size + 2 * hidden)
    )


def _cache_bytes(layers: int, heads: int, width: int) -> int:
    return 2 * layers * heads * width * _FP32_BYTES


def _safetensors_parameters(file: Path) -> int:
    """Elements of all tensors, from the header alone."""
    with file.open("rb") as handle:
        header = json.loads(handle.read(int.from_bytes(handle.read(8), "little")))
    return sum(math.prod(entry["shape"]) for name, entry in header.items() if name != "__metadata__")
