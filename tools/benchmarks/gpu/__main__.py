"""Measure the trainer and generation on one device, and print JSON and tables.

    python -m tools.benchmarks.gpu [--page docs/performance.md] [--shape tiny --device cpu]

Compares packed with padded sequences, log-probabilities in chunks with whole logits, and the project's engine with
transformers' continuous batching, and searches the longest response that fits into memory. Nothing is loaded: models
have random weights, and the lengths of responses are log-normal.
"""

import argparse
import json
import platform
import statistics
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
import transformers

from tools.benchmarks.gpu.device import free, matrix_rate, measure_working, peak, wait
from tools.benchmarks.gpu.generation import generation
from tools.benchmarks.gpu.synthetic import Rollouts, make_backend, make_parser, operations
from tools.benchmarks.gpu.training import longest_that_fits, packed_update, padded_update, whole_logits_update
from tools.docs.sections import replace_section

WAYS: dict[str, tuple[Callable[..., None], dict[str, bool]]] = {
    "packed, chunked": (packed_update, {}),
    "packed, chunked, gradient checkpointing": (packed_update, {"checkpointing": True}),
    "packed, chunked, Liger": (packed_update, {"liger": True}),
    "packed, whole logits": (whole_logits_update, {}),
    "padded, chunked": (padded_update, {}),
}
_HEAD = """Written by `python -m tools.benchmarks.gpu` (`make bench-gpu`) on one {device}, torch {torch}, transformers
{transformers}: a {shape} model with random weights; {responses} responses with log-normal lengths, median
{median:.0f} and at most {longest} tokens; {tokens} tokens per update, {budget} per micro-batch. The tables have medians
of {repeats} repeats. MFU is the share of {matrix:.3g} TFLOP/s, the measured speed of products of large matrices.
"""


def main() -> None:
    parser = make_parser(str(__doc__))
    parser.add_argument("--responses", type=int, default=128)
    parser.add_argument("--new-tokens", type=int, default=256, help="tokens of every generated response")
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("this machine has no GPU; try --device cpu --shape tiny --responses 16 --median 60")
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
        replace_section(options.page, "gpu", text)


def training(options: argparse.Namespace, device: torch.device) -> dict[str, Any]:
    """Measure updates in every way."""
    rollouts = Rollouts.make(options.shape, options.responses, options.median, options.longest)
    needed_operations = operations(options.shape, rollouts)
    operations_per_second = matrix_rate(device)
    memory: dict[str, float | None] = {}

    def seconds_of_update(way: str) -> float:
        """Return the seconds of a second update; the first one warms up and allocates the moments of AdamW."""
        update, extra = WAYS[way]
        backend = make_backend(options.shape, device, 1024, **extra)
        update(backend, rollouts, options.budget)
        free()
        start = time.perf_counter()
        update(backend, rollouts, options.budget)
        wait()
        memory[way] = peak() / 2**30 if device.type == "cuda" else None
        return time.perf_counter() - start

    seconds, failed = measure_working({way: partial(seconds_of_update, way) for way in WAYS}, options.repeats)
    rows: dict[str, dict[str, Any]] = {way: {"failed": error} for way, error in failed.items()}
    for way, values in seconds.items():
        median = statistics.median(values)
        rows[way] = {
            "tokens/s": rollouts.tokens / median,
            "tokens/s, least": rollouts.tokens / max(values),
            "tokens/s, most": rollouts.tokens / min(values),
            "MFU": needed_operations / median / operations_per_second,
            "peak GiB": memory[way],
        }
    ways = {way: rows[way] for way in WAYS}
    return {"tokens": rollouts.tokens, "matrix product, operations/s": operations_per_second, "ways": ways}


def longest(options: argparse.Namespace, device: torch.device) -> dict[str, Any]:
    """Return the longest responses that fit into a part of the memory of a GPU; empty for a CPU."""
    if device.type != "cuda":
        return {}
    total = torch.cuda.get_device_properties(device).total_memory
    torch.cuda.set_per_process_memory_fraction(min(1.0, options.gib * 2**30 / total), device)
    tokens = {
        "chunked": longest_that_fits(options.shape, device, False, False),
        "chunked, gradient checkpointing": longest_that_fits(options.shape, device, True, False),
        "whole logits": longest_that_fits(options.shape, device, False, True),
    }
    torch.cuda.set_per_process_memory_fraction(1.0, device)
    return tokens


def page(result: dict[str, Any]) -> str:
    """Return the result as Markdown."""
    options, ways, tokens = result["options"], result["training"]["ways"], result["training"]["tokens"]
    matrix = result["training"]["matrix product, operations/s"] / 1e12
    parts = [_HEAD.format(**{**options, **result, "tokens": tokens, "matrix": matrix})]
    parts.append(_table(("training", "tokens/s", "range", "MFU", "peak GiB"), (_row(*one) for one in ways.items())))
    if result["longest response"]:
        rows = ((way, f"{tokens:,}") for way, tokens in result["longest response"].items())
        parts.append(_table((f"longest response in {options['gib']:.0f} GiB", "tokens"), rows))
    rates = result["generation"].items()
    rows = ((way, rate if isinstance(rate, str) else f"{rate:,.0f}") for way, rate in rates)
    parts.append(_table(("generation", "tokens/s"), rows))
    return "\n".join(parts)


def _row(name: str, row: dict[str, Any]) -> tuple[str, ...]:
    if "failed" in row:
        return name, row["failed"], "", "", ""
    values = f"{row['tokens/s, least']:,.0f} to {row['tokens/s, most']:,.0f}"
    memory = "" if row["peak GiB"] is None else f"{row['peak GiB']:.1f}"
    return name, f"{row['tokens/s']:,.0f}", values, f"{row['MFU']:.1%}", memory


def _table(columns: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [columns, ("---",) * len(columns), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


if __name__ == "__main__":
    main()
