"""Trained tokens per second, peak memory and the longest response beside TRL's trainer, at real shapes on a GPU.

    python -m tools.benchmarks.gpu.beside_trl [--page docs/performance.md]
    python -m tools.benchmarks.gpu.beside_trl --device cpu --shape tiny --median 20 --longest 60 --repeats 1

The same frozen rollouts, model and loss on both sides, in bfloat16 with float32 weights and moments. A side is made,
makes one update, is measured in the next and is gone before the other is made. What fails says why.
"""

import argparse
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.markdown import Markdown
from transformers import PreTrainedModel

from tasks.cli.pages import replace_between_marks
from tools.benchmarks.document import section
from tools.benchmarks.gpu.device import free, held, peak
from tools.benchmarks.gpu.made import SHAPES, make_model
from tools.benchmarks.gpu.training import largest
from tools.benchmarks.measured import Measured, Values, in_turn, ratio
from tools.benchmarks.trl.frozen import SIGMA, Frozen, Shape
from tools.benchmarks.trl.sides import ON_CPU, Ours, Theirs

OURS, OURS_AGAIN = "ours", "ours, layers computed again"
DEFAULTS, BEST, ONE, LIGER = "TRL, its defaults", "TRL, its best", "TRL, one response at a time", "TRL, Liger's loss"
MICRO_BATCHES = (2, 4, 8, 16)
COMMAND = "python -m tools.benchmarks.gpu.beside_trl"
GIB = 2**30
Side = Callable[[Frozen], Ours | Theirs]


@dataclass(frozen=True)
class RealShape(Shape):
    """The shape of a known model, which is made where it is trained."""

    name: str = ""
    device: str = "cuda"

    @staticmethod
    def of(name: str, device: str) -> "RealShape":
        known = SHAPES[name]
        sizes = known["vocab_size"], known["hidden_size"], known["num_hidden_layers"], known["num_attention_heads"]
        return RealShape(*sizes, name=name, device=device)

    def model(self, attention: str) -> PreTrainedModel:
        return make_model(self.name, attention, torch.device(self.device), torch.float32)


def sides(options: argparse.Namespace, folder: Path) -> dict[str, Side]:
    """The makers of each side, with every micro-batch of TRL's that is tried."""
    gpu = options.device == "cuda"
    backend: dict[str, Any] = {"dtype": "bfloat16"} if gpu else {}
    more = {"bf16": True} if gpu else ON_CPU
    made: dict[str, Side] = {
        OURS: lambda frozen: Ours(frozen, options.budget, **backend),
        OURS_AGAIN: lambda frozen: Ours(frozen, options.budget, checkpointing=True, **backend),
        DEFAULTS: lambda frozen: Theirs(frozen, folder, arguments=more),
        ONE: lambda frozen: Theirs(frozen, folder, 1, arguments=more),
    }
    for size in MICRO_BATCHES:
        made[_best(size)] = partial(Theirs, folder=folder, micro_batch=size, checkpointing=False, arguments=more)
    if gpu and find_spec("liger_kernel"):
        made[LIGER] = lambda frozen: Theirs(frozen, folder, arguments={**more, "use_liger_kernel": True})
    return made


def _best(size: int) -> str:
    return f"{BEST}, micro-batches of {size}"


@dataclass
class Updates:
    """Seconds and GiB of updates, way by way."""

    frozen: Frozen
    held: dict[str, float]
    peaks: dict[str, Values]

    def of(self, name: str, make: Side) -> float:
        """Seconds of a side's second update."""
        try:
            return self._measured(name, make)
        finally:
            free()

    def _measured(self, name: str, make: Side) -> float:
        side = make(self.frozen)
        side.update()
        free()
        self.held[name] = held() / GIB
        seconds = side.update()
        self.peaks.setdefault(name, []).append(peak() / GIB)
        return seconds


def updates(options: argparse.Namespace, frozen: Frozen, made: Mapping[str, Side]) -> list[Measured]:
    """Trained tokens per second and peak memory; every way is tried once before."""
    found = Updates(frozen, {}, {})
    tried: dict[str, float] = {}
    failed: dict[str, str] = {}
    for name, make in made.items():
        try:
            tried[name] = found.of(name, make)
        except (RuntimeError, ImportError) as error:  # out of memory, or a kernel that is missing
            failed[name] = f"{type(error).__name__}: {str(error).splitlines()[0][:120]}"
    sizes = {size: tried[_best(size)] for size in MICRO_BATCHES if _best(size) in tried}
    best = min(sizes, key=sizes.__getitem__, default=None)
    ways = {name: make for name, make in made.items() if name in tried and not name.startswith(BEST)}
    if best is not None:
        ways[BEST] = made[_best(best)]
    found.peaks.clear()
    seconds = in_turn({name: partial(found.of, name, make) for name, make in ways.items()}, options.repeats, "updates")
    rates = {name: [frozen.tokens / one for one in values] for name, values in seconds.items()}
    above = {name: [one - found.held[name] for one in values] for name, values in found.peaks.items()}
    bars = [(OURS, BEST, 1.5), (OURS, DEFAULTS, 2.5)]
    facts = {"tokens": frozen.tokens, "sigma": SIGMA, "micro-batches, s": sizes, "failed": failed}
    training = Measured(
        name="training",
        what=f"Tokens of an update of GRPO, without padding, per second of its passes and its step of AdamW, of a "
        f"{options.shape} model with random weights.",
        unit="tokens/s",
        ways=rates,
        ratios=[ratio(rates, ours, theirs, bar) for ours, theirs, bar in bars if {ours, theirs} <= rates.keys()],
        facts=facts,
    )
    if options.device != "cuda":
        return [training]
    bars = [(OURS_AGAIN, DEFAULTS, 0.6), (OURS_AGAIN, ONE, 0.6), (OURS_AGAIN, LIGER, 1.0)]
    memory = Measured(
        name="memory",
        what="Peak memory of that update above the weights, moments and gradients that are held before it.",
        unit="GiB",
        ways=above,
        ratios=[ratio(above, ours, theirs, bar, True) for ours, theirs, bar in bars if {ours, theirs} <= above.keys()],
        facts={"held before it, GiB": found.held},
    )
    return [training, memory]


def longest(options: argparse.Namespace, shape: RealShape, made: Mapping[str, Side]) -> Measured:
    """The longest response that either side can learn from in the given memory."""
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(min(1.0, options.gib * GIB / total))

    def longest_of(make: Side) -> float:
        def fits(tokens: int) -> bool:
            try:
                make(Frozen(shape, 1, 2, median=1e9, longest=tokens)).update()
            except torch.OutOfMemoryError:
                return False
            finally:
                free()
            return True

        return float(largest(fits))

    values = {name: [longest_of(made[name])] for name in (OURS_AGAIN, ONE)}
    torch.cuda.set_per_process_memory_fraction(1.0)
    return Measured(
        name="longest",
        what=f"The longest of two responses whose update fits into {options.gib:g} GiB, within a tenth.",
        unit="tokens",
        ways=values,
        ratios=[ratio(values, OURS_AGAIN, ONE, 4)] if values[ONE][0] else [],
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=list(SHAPES), default="qwen2.5-1.5b")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--groups", type=int, default=16, help="of 8 responses each, in an update")
    parser.add_argument("--median", type=float, default=600, help="response tokens")
    parser.add_argument("--longest", type=int, default=4096, help="response tokens")
    parser.add_argument("--budget", type=int, default=16384, help="tokens of one of our micro-batches")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--gib", type=float, default=40, help="memory for the longest response")
    parser.add_argument("--page", type=Path, help="a Markdown file whose part between marks gets the tables")
    options = parser.parse_args()
    gpu = options.device == "cuda"
    if gpu and torch.cuda.device_count() != 1:
        parser.error(f"{torch.cuda.device_count()} GPUs are seen; TRL's trainer shares its batches among all. Set "
                     "CUDA_VISIBLE_DEVICES to one of them, or try --device cpu --shape tiny")  # fmt: skip
    shape = RealShape.of(options.shape, options.device)
    frozen = Frozen(shape, options.groups, 8, options.median, options.longest)
    with tempfile.TemporaryDirectory() as folder:
        made = sides(options, Path(folder))
        found = updates(options, frozen, made)
        found += [longest(options, shape, made)] if gpu else []
    device = torch.cuda.get_device_name() if gpu else "a CPU"
    versions = ", ".join(f"{name} {value}" for name, value in found[0].machine.items())
    text = "\n\n".join([f"On {device}: {versions}.", *(section(one, COMMAND, level=4) for one in found)])
    Console().print(Markdown(text))
    if options.page:
        replace_between_marks(options.page, "gpu-trl", text + "\n")


if __name__ == "__main__":
    main()
