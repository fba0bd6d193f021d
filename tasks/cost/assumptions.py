"""What a prediction rests on, line by line, with where it comes from."""

from collections.abc import Iterator
from dataclasses import dataclass

from tasks.cost.measured import Measured
from tasks.cost.memory import TrainingMemory
from tasks.cost.pool import GPU_ROLES, Pool
from tasks.cost.rates import EngineRates, Rates
from tasks.cost.shapes import Shape
from tasks.settings import RunSettings
from tasks.settings.cost import AcceleratorSettings, CostSettings, Source

_EXACT = 1000.0


@dataclass(frozen=True)
class Assumption:
    """A number that a prediction uses."""

    name: str
    value: str
    source: Source
    note: str = ""


def cluster_assumptions(
    run: RunSettings, shape: Shape, memory: TrainingMemory, pool: Pool, prices: str
) -> Iterator[Assumption]:
    """GPUs, their memory, pods and prices."""
    by_role = {role: pool.accelerators[role] for role in GPU_ROLES}
    kinds = ", ".join(dict.fromkeys(by_role.values()))
    yield Assumption("GPUs", f"{pool.layout.gpus} x {kinds}", "given")
    for role in GPU_ROLES:
        paid = "spot" if role in pool.spot else "on demand"
        yield Assumption(f"pod of {role}", f"{pool.layout.pod_gpus[role]} x {by_role[role]}", "given", paid)
    routed = f", {shape.active_parameters / 1e9:.2f} B for a token" if shape.idle_parameters else ""
    yield Assumption("policy", f"{shape.parameters / 1e9:.2f} B parameters{routed}", "given", run.policy.path or "tiny")
    kept, room = memory.told("weights", "gradients", "moments"), pool.gpu("train").memory_gb
    yield Assumption("training, per GPU", f"{memory.lasting / 1e9:.1f} of {room:g} GB", "given", kept)
    added = f"{memory.told('activations', 'logits')}; at least"
    yield Assumption("micro-batch, per GPU", f"{memory.passing / 1e9:.1f} GB", "given", added)
    yield Assumption("prices", prices, "given", "examples, unless the file is yours")
    yield Assumption("interruptions", "none", "assumed", "what spot nodes lose comes on top")


def assumed(run: RunSettings, rates: Rates, pool: Pool, costs: CostSettings) -> Iterator[Assumption]:
    """Rates by data sheets."""
    engine, trainer, values = pool.gpu("rollout"), pool.gpu("train"), costs.assumptions
    longest = run.rollout.max_new_tokens
    share = f"{values.response_share:g} of rollout.max_new_tokens {longest}"
    yield Assumption("mean response", f"{rates.lengths.at(0, longest):g} tokens", "assumed", share)
    yield Assumption("longest response", f"{longest} tokens", "assumed", "of every call of the engine")
    yield Assumption("mean prompt", f"{values.prompt_tokens:g} tokens", "assumed")
    source, used = engine.throughput.source, engine.throughput
    reads = f"{used.decoding_bandwidth:.0%} of {engine.bandwidth_gb_per_second:g} GB/s"
    computes = f"{used.decoding_flops:.0%} of {_peak(engine, run.rollout.engine.dtype)}"
    yield Assumption("decode step", _milliseconds(rates.rollout.step), source, f"weights at {reads}")
    yield Assumption("decode step, per row", _milliseconds(rates.rollout.row), source, f"cache at {reads}; {computes}")
    rows = f"rollout.engine.batch_size {run.rollout.engine.batch_size}, and what fits"
    yield Assumption("rows at once", str(rates.rollout.rows), "given", rows)
    backend = run.optimize.backend
    operations = (4 if run.optimize.lora else 6) + (2 if backend.gradient_checkpointing else 0)
    peak = f"{trainer.throughput.training_flops:.0%} of {_peak(trainer, backend.dtype)}"
    trained = f"{operations} operations per weight at {peak}, on {pool.layout.training_gpus} GPUs"
    yield Assumption("update, per token", _milliseconds(rates.trained_token), trainer.throughput.source, trained)
    yield Assumption("log-probability", _milliseconds(rates.scored_token), trainer.throughput.source, "2 operations")
    yield Assumption("update, besides", f"{rates.update:g} s", "assumed")
    workers = f"in each of {run.verify.workers} workers; {rates.verifier:g} s to start them"
    yield Assumption("answer", _milliseconds(rates.answer), "assumed", workers)
    yield Assumption("start of a pod", f"{rates.start:g} s", "assumed")
    yield Assumption("start of an engine", f"{rates.engine:g} s", "assumed", "besides the transfer")
    yield Assumption("start of the trainer", f"{rates.trainer:g} s", "assumed", "besides the transfer")
    yield Assumption("store", f"{values.store_gb_per_second:g} GB/s", "assumed", "of a pod")
    yield Assumption("hub", f"{values.hub_gb_per_second:g} GB/s", "assumed")
    if run.policy.tiny:
        yield Assumption("warm start", "0 s", "assumed", "not modelled without a run")


def measured(found: Measured) -> Iterator[Assumption]:
    """Rates of a run."""
    rates, run = found.rates, f"{found.report}: {found.name}"
    lengths = [tokens for _, tokens in rates.lengths.points]
    yield Assumption("mean response", f"{lengths[0]:.1f} to {lengths[-1]:.1f} tokens", "measured", run)
    yield from _decoding("decode step", rates.rollout)
    if rates.evaluate != rates.rollout:
        yield from _decoding("decode step, evaluation", rates.evaluate)
    yield Assumption("update, per token", _milliseconds(rates.trained_token), "measured", "with its prompt's share")
    yield Assumption("log-probability", _milliseconds(rates.scored_token), "measured", "a token")
    yield Assumption("update, besides", f"{rates.update:.3g} s", "measured")
    yield Assumption("answer", _milliseconds(rates.answer), "measured", f"{rates.verifier:.2f} s to start the workers")
    yield Assumption("start of an engine", f"{rates.engine:.2f} s", "measured", "transfer included")
    yield Assumption("start of the trainer", f"{rates.trainer:.2f} s", "measured", "transfer included")


def switching(rates: Rates, own: Measured | None, run: RunSettings) -> Iterator[Assumption]:
    """What the baseline rests on besides."""
    value = f"{rates.switch:.3g} s a refresh"
    if own is not None and own.alternating:
        yield Assumption("grpo, switch", value, "measured", f"{own.report}: {own.name}; its other rates too")
        return
    yield Assumption("grpo, switch", value, "assumed", "to generation and back, with the new weights")
    if own is not None:
        yield Assumption("grpo, other rates", "those of mu_grpo", "assumed", "the store has no run that alternates")
    parallel = run.rollout.engine.tensor_parallel
    if parallel > 1:
        yield Assumption("grpo, engines", f"of {parallel} GPUs", "assumed", "workflows/grpo.py has engines of one GPU")


def _decoding(name: str, engine: EngineRates) -> Iterator[Assumption]:
    yield Assumption(name, _milliseconds(engine.step), "measured")
    yield Assumption(f"{name}, per row", _milliseconds(engine.row), "measured", "prompts included")


def _peak(gpu: AcceleratorSettings, dtype: str) -> str:
    return f"{gpu.bfloat16_tflops if dtype == 'bfloat16' else gpu.float32_tflops:g} TFLOPS"


def _milliseconds(seconds: float) -> str:
    return f"{_EXACT * seconds:.3g} ms"
