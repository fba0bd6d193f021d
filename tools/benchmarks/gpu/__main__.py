"""Measures the trainer and transformers' generation on one device; prints JSON and tables.

    python -m tools.benchmarks.gpu [--page docs/performance.md] [--shape tiny --device cpu]

Packed sequences beside padded ones, log-probabilities in chunks beside whole logits, the longest response that fits,
and generation with the project's engine beside transformers' continuous batching. Nothing is loaded: models have
random weights, and rollouts log-normal lengths.
"""

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
import transformers

from tasks.cli.pages import replace_between_marks
from tasks.errors import SettingsError
from tools.benchmarks.gpu.device import free, matrix_rate, peak, wait
from tools.benchmarks.gpu.generation import generation
from tools.benchmarks.gpu.made import SHAPES, Rollouts, make_backend, operations
from tools.benchmarks.gpu.training import longest_that_fits, packed_update, padded_update, whole_logits_update

WAYS: dict[str, tuple[Callable[..., None], dict[str, bool]]] = {
    "packed, chunked": (packed_update, {}),
    "packed, chunked, layers computed again": (packed_update, {"checkpointing": True}),
    "packed, chunked, Liger": (packed_update, {"liger": True}),
    "packed, whole logits": (whole_logits_update, {}),
    "padded, chunked": (padded_update, {}),
}
_HEAD = """Written by `python -m tools.benchmarks.gpu` (`make bench-gpu`) on one {device}, torch {torch}, transformers
{transformers}: a {shape} model with random weights; {responses} responses with log-normal lengths, median
{median:.0f} and at most {longest} tokens; {tokens} tokens an update, {budget} a micro-batch; {repeats} times in turn,
medians. MFU is the share of {matrix:.3g} TFLOP/s, which products of large matrices reached.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=list(SHAPES), default="qwen2.5-1.5b")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--responses", type=int, default=128)
    parser.add_argument("--median", type=float, default=600, help="response tokens")
    parser.add_argument("--longest", type=int, default=4096, help="response tokens")
    parser.add_argument("--budget", type=int, default=16384, help="tokens of a micro-batch")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--gib", type=float, default=40, help="memory for the longest response")
    parser.add_argument("--new-tokens", type=int, default=256, help="of every generated response")
    parser.add_argument("--page", type=Path, help="a Markdown file whose part between marks gets the tables")
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("there is no GPU here; try --device cpu --shape tiny --responses 16 --median 60")
    device = torch.device(options.device)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or "CPU"
    result: dict[str, Any] = {
        "device": name,
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "options": {key: value for key, value in vars(options).items() if key != "page"},
        "training": training(options, device),
        "longest response": longest(options, device),
        "generation": generation(options, device),
    }
    print(json.dumps(result))
    text = page(result)
    print(text)
    if options.page:
        replace_between_marks(options.page, "gpu", text)


def training(options: argparse.Namespace, device: torch.device) -> dict[str, Any]:
    """Every way beside the others: in turn, so that a device that warms up is unfair to none."""
    rollouts = Rollouts.make(options.shape, options.responses, options.median, options.longest)
    useful = operations(options.shape, rollouts)
    reached = matrix_rate(device)
    seconds: dict[str, list[float]] = {}
    memory: dict[str, float | None] = {}
    failed: dict[str, str] = {}
    for _ in range(options.repeats):
        for way, (update, extra) in WAYS.items():
            if way in failed:
                continue
            try:
                seconds.setdefault(way, []).append(second_update(options, device, update, rollouts, extra))
                memory[way] = peak() / 2**30 if device.type == "cuda" else None
            except (RuntimeError, SettingsError) as error:  # out of memory, or a package that is missing
                failed[way] = f"{type(error).__name__}: {str(error).splitlines()[0][:120]}"
            free()
    rows: dict[str, dict[str, Any]] = {}
    for way in WAYS:
        if way in failed:
            rows[way] = {"failed": failed[way]}
            continue
        took = statistics.median(seconds[way])
        rows[way] = {
            "tokens/s": rollouts.tokens / took,
            "tokens/s, least": rollouts.tokens / max(seconds[way]),
            "tokens/s, most": rollouts.tokens / min(seconds[way]),
            "MFU": useful / took / reached,
            "peak GiB": memory[way],
        }
    return {"tokens": rollouts.tokens, "matrix product, operations/s": reached, "ways": rows}


def second_update(
    options: argparse.Namespace,
    device: torch.device,
    update: Callable[..., None],
    rollouts: Rollouts,
    extra: dict[str, bool],
) -> float:
    """Seconds of an update after one that warms up, and makes AdamW's moments."""
    backend = make_backend(options.shape, device, 1024, **extra)
    update(backend, rollouts, options.budget)
    free()
    start = time.perf_counter()
    update(backend, rollouts, options.budget)
    wait()
    return time.perf_counter() - start


def longest(options: argparse.Namespace, device: torch.device) -> dict[str, Any]:
    """Response tokens of one sequence whose gradients fit into the given memory; a GPU's alone can be limited."""
    if device.type != "cuda":
        return {}
    total = torch.cuda.get_device_properties(device).total_memory
    torch.cuda.set_per_process_memory_fraction(min(1.0, options.gib * 2**30 / total), device)
    found = {
        "chunked": longest_that_fits(options.shape, device, False, False),
        "chunked, layers computed again": longest_that_fits(options.shape, device, True, False),
        "whole logits": longest_that_fits(options.shape, device, False, True),
    }
    torch.cuda.set_per_process_memory_fraction(1.0, device)
    return found


def page(result: dict[str, Any]) -> str:
    """The result as Markdown."""
    options, ways, tokens = result["options"], result["training"]["ways"], result["training"]["tokens"]
    reached = result["training"]["matrix product, operations/s"]
    parts = [_HEAD.format(**{**options, **result, "tokens": tokens, "matrix": reached / 1e12})]
    parts.append(_table(("training", "tokens/s", "range", "MFU", "peak GiB"), (_way(*one) for one in ways.items())))
    if result["longest response"]:
        rows = ((way, f"{tokens:,}") for way, tokens in result["longest response"].items())
        parts.append(_table((f"longest response in {options['gib']:.0f} GiB", "tokens"), rows))
    rates = result["generation"].items()
    rows = ((way, rate if isinstance(rate, str) else f"{rate:,.0f}") for way, rate in rates)
    parts.append(_table(("generation", "tokens/s"), rows))
    return "\n".join(parts)


def _way(name: str, row: dict[str, Any]) -> tuple[str, ...]:
    if "failed" in row:
        return name, row["failed"], "", "", ""
    spread = f"{row['tokens/s, least']:,.0f} to {row['tokens/s, most']:,.0f}"
    memory = "" if row["peak GiB"] is None else f"{row['peak GiB']:.1f}"
    return name, f"{row['tokens/s']:,.0f}", spread, f"{row['MFU']:.1%}", memory


def _table(columns: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [columns, ("---",) * len(columns), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


if __name__ == "__main__":
    main()
