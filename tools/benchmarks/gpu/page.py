"""The measurements as a page for people."""

from collections.abc import Iterable
from typing import Any

_HEAD = """Written by `python -m tools.benchmarks.gpu` (`make bench-gpu`) on one {device}, torch {torch}, transformers
{transformers}: a {shape} model with random weights; {responses} responses with log-normal lengths, median
{median:.0f} and at most {longest} tokens; {tokens} tokens an update, {budget} a micro-batch; {repeats} times in turn,
medians. MFU is the share of {matrix:.3g} TFLOP/s, which products of large matrices reached.
"""


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
