"""Trained tokens per second, peak memory and longest response of the trainer and of TRL's, with real shapes on a GPU.

    python -m tools.benchmarks.gpu.beside_trl [--page docs/performance.md]
    python -m tools.benchmarks.gpu.beside_trl --device cpu --shape tiny --median 20 --longest 60 --repeats 1

Both train the same model with the same rollouts and loss, in bfloat16 with weights and moments in float32. For every
measurement a trainer is made, makes an update, is measured in the next update, and is deleted. The facts name failures.
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

from tools.benchmarks.document import section
from tools.benchmarks.gpu.device import free, held, measure_working, peak
from tools.benchmarks.gpu.synthetic import SHAPES, make_model, make_parser
from tools.benchmarks.gpu.training import largest
from tools.benchmarks.measurement import Measurement, Values, measure_interleaved, ratio
from tools.benchmarks.trl.frozen import SIGMA, FrozenRollouts, Shape
from tools.benchmarks.trl.trainers import BEST, DEFAULTS, ON_CPU, OURS, OurTrainer, TrlTrainer
from tools.docs.sections import replace_section

OURS_CHECKPOINTING = f"{OURS}, gradient checkpointing"
ONE, LIGER = "TRL, one response at a time", "TRL, Liger's loss"
MICRO_BATCHES = (2, 4, 8, 16)
COMMAND = "python -m tools.benchmarks.gpu.beside_trl"
GIB = 2**30
Maker = Callable[[FrozenRollouts], OurTrainer | TrlTrainer]
"""A function that makes a trainer."""


@dataclass(frozen=True)
class RealShape(Shape):
    """The shape of a known model, and the device on which it is made."""

    name: str = ""
    device: str = "cuda"

    @staticmethod
    def of(name: str, device: str) -> "RealShape":
        """Return the shape with a name."""
        known = SHAPES[name]
        sizes = known["vocab_size"], known["hidden_size"], known["num_hidden_layers"], known["num_attention_heads"]
        return RealShape(*sizes, name=name, device=device)

    def model(self, attention: str) -> PreTrainedModel:
        return make_model(self.name, attention, torch.device(self.device), torch.float32)


def trainer_makers(options: argparse.Namespace, folder: Path) -> dict[str, Maker]:
    """Return the makers of all trainers; TRL's best has one for every size of micro-batches that is tried."""
    gpu = options.device == "cuda"
    backend: dict[str, Any] = {"dtype": "bfloat16"} if gpu else {}
    arguments = {"bf16": True} if gpu else ON_CPU
    makers: dict[str, Maker] = {
        OURS: lambda frozen: OurTrainer(frozen, options.budget, **backend),
        OURS_CHECKPOINTING: lambda frozen: OurTrainer(frozen, options.budget, checkpointing=True, **backend),
        DEFAULTS: lambda frozen: TrlTrainer(frozen, folder, arguments=arguments),
        ONE: lambda frozen: TrlTrainer(frozen, folder, 1, arguments=arguments),
    }
    for size in MICRO_BATCHES:
        makers[_best_with(size)] = partial(
            TrlTrainer, folder=folder, micro_batch=size, checkpointing=False, arguments=arguments
        )
    if gpu and find_spec("liger_kernel"):
        makers[LIGER] = lambda frozen: TrlTrainer(frozen, folder, arguments={**arguments, "use_liger_kernel": True})
    return makers


def _best_with(size: int) -> str:
    return f"{BEST}, micro-batches of {size}"


@dataclass
class Updates:
    """Measurements of updates, with their memory by trainer."""

    frozen: FrozenRollouts
    held: dict[str, float]
    """GiB before the last update."""
    peaks: dict[str, Values]
    """Peak GiB of every update."""

    def seconds(self, name: str, make: Maker) -> float:
        """Make a trainer and two updates, and return the seconds of the second one."""
        free()
        trainer = make(self.frozen)
        trainer.update()
        free()
        self.held[name] = held() / GIB
        seconds = trainer.update()
        self.peaks.setdefault(name, []).append(peak() / GIB)
        return seconds


def measure_updates(
    options: argparse.Namespace, frozen: FrozenRollouts, makers: Mapping[str, Maker]
) -> list[Measurement]:
    """Measure trained tokens per second and peak memory of all trainers that do not fail in a first trial."""
    updates = Updates(frozen, {}, {})
    trials, failed = measure_working({name: partial(updates.seconds, name, make) for name, make in makers.items()}, 1)
    sizes = {size: trials[_best_with(size)][0] for size in MICRO_BATCHES if _best_with(size) in trials}
    best = min(sizes, key=sizes.__getitem__, default=None)
    chosen = {name: make for name, make in makers.items() if name in trials and not name.startswith(BEST)}
    if best is not None:
        chosen[BEST] = makers[_best_with(best)]
    updates.peaks.clear()
    seconds = measure_interleaved(
        {name: partial(updates.seconds, name, make) for name, make in chosen.items()}, options.repeats, "updates"
    )
    rates = {name: [frozen.tokens / one for one in values] for name, values in seconds.items()}
    above = {name: [one - updates.held[name] for one in values] for name, values in updates.peaks.items()}
    bars = [(OURS, BEST, 1.5), (OURS, DEFAULTS, 2.5)]
    facts = {"tokens": frozen.tokens, "sigma": SIGMA, "micro-batches, s": sizes, "failed": failed}
    training = Measurement(
        name="training",
        what=f"Tokens of an update of GRPO, without padding, per second of its forward and backward passes and its "
        f"step of AdamW, for a {options.shape} model with random weights.",
        unit="tokens/s",
        ways=rates,
        ratios=[ratio(rates, ours, theirs, bar) for ours, theirs, bar in bars if {ours, theirs} <= rates.keys()],
        facts=facts,
    )
    if options.device != "cuda":
        return [training]
    bars = [(OURS_CHECKPOINTING, other, bar) for other, bar in ((DEFAULTS, 0.6), (ONE, 0.6), (LIGER, 1.0))]
    memory = Measurement(
        name="memory",
        what="Peak memory of the same update, minus that of weights, moments and gradients before the update.",
        unit="GiB",
        ways=above,
        ratios=[ratio(above, ours, theirs, bar, True) for ours, theirs, bar in bars if {ours, theirs} <= above.keys()],
        facts={"before the update, GiB": updates.held},
    )
    return [training, memory]


def measure_longest(options: argparse.Namespace, shape: RealShape, makers: Mapping[str, Maker]) -> Measurement:
    """Search the longest response that each trainer can train on with limited memory."""
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(min(1.0, options.gib * GIB / total))

    def longest(make: Maker) -> float:
        def fits(tokens: int) -> bool:
            try:
                make(FrozenRollouts(shape, 1, 2, median=1e9, longest=tokens)).update()
            except torch.OutOfMemoryError:
                return False
            finally:
                free()
            return True

        return float(largest(fits))

    values = {name: [longest(makers[name])] for name in (OURS_CHECKPOINTING, ONE)}
    torch.cuda.set_per_process_memory_fraction(1.0)
    return Measurement(
        name="longest",
        what=f"The longest response of which two fit into an update with {options.gib:g} GiB, within a tenth.",
        unit="tokens",
        ways=values,
        ratios=[ratio(values, OURS_CHECKPOINTING, ONE, 4)] if values[ONE][0] else [],
    )


def main() -> None:
    parser = make_parser(str(__doc__))
    parser.add_argument("--groups", type=int, default=16, help="groups of 8 responses in an update")
    options = parser.parse_args()
    gpu = options.device == "cuda"
    if gpu and torch.cuda.device_count() != 1:
        parser.error(f"needs one GPU, but {torch.cuda.device_count()} are visible, and TRL splits batches over all. "
                     "Set CUDA_VISIBLE_DEVICES to one of them, or try --device cpu --shape tiny")  # fmt: skip
    shape = RealShape.of(options.shape, options.device)
    frozen = FrozenRollouts(shape, options.groups, 8, options.median, options.longest)
    with tempfile.TemporaryDirectory() as folder:
        makers = trainer_makers(options, Path(folder))
        measurements = measure_updates(options, frozen, makers)
        measurements += [measure_longest(options, shape, makers)] if gpu else []
    device = torch.cuda.get_device_name() if gpu else "a CPU"
    versions = ", ".join(f"{name} {value}" for name, value in measurements[0].machine.items())
    text = "\n\n".join([f"On {device}: {versions}.", *(section(one, COMMAND, level=4) for one in measurements)])
    Console().print(Markdown(text))
    if options.page:
        replace_section(options.page, "gpu-trl", text + "\n")


if __name__ == "__main__":
    main()
