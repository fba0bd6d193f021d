"""Generated tokens per second of the step that generates a shard, and of its engine alone.

    python -m tools.benchmarks rollouts

The step reads prompts and policy from a store, tokenises prompts, samples in parts, decodes responses, writes Parquet
with digests, and saves every part for a restart. The engine alone gets the same requests in the same parts, with the
same seeds, so that both generate the same tokens. Making the requests, and loading the policy, are not measured.
"""

import itertools
import tempfile
import time
from pathlib import Path

import torch

from tasks.data.arithmetic import split
from tasks.models.loading import OPTIMIZER, load_tokenizer
from tasks.models.step import prepare_policy
from tasks.rollout.engine import Sampling, engine_of, ignore_progress
from tasks.rollout.step import build_requests, generate_shard, prompts_by_call, tokenise_all
from tasks.settings import ArithmeticSettings, PolicySettings, RolloutSettings, TinyPolicySettings, WarmStartSettings
from tasks.store import ArtifactRef, Store
from tasks.store.tables import PROMPTS, read_table, write_table
from tools.benchmarks.measurement import Measurement, measure_interleaved, ratio

PROBLEMS = split(ArithmeticSettings())[0][:256]
SETTINGS = RolloutSettings(responses_per_prompt=8, max_new_tokens=32)
WARM_START = WarmStartSettings(working_updates=60, guessing_updates=20)
STEP, ENGINE = "the step", "the engine alone"
FINDING = (
    "cProfile: besides the engine, the step tokenises prompts, decodes responses, writes Parquet and waits for the "
    "disk. It tokenises all prompts in one call, which takes less time than one call per prompt."
)


def base_policy(folder: Path, arithmetic: ArithmeticSettings, warm_start: WarmStartSettings = WARM_START) -> Path:
    """Make a tiny base policy for some arithmetic, and return its folder, which is below ``folder``."""
    store = Store.open(str(folder / "policies"))
    return store.path(_prepare_policy(store, arithmetic, warm_start), without=OPTIMIZER)


def _prepare_policy(store: Store, arithmetic: ArithmeticSettings, warm_start: WarmStartSettings) -> ArtifactRef:
    settings = PolicySettings(tiny=TinyPolicySettings(warm_start=warm_start))
    return prepare_policy(store, settings, arithmetic, "", 0)


def policy_and_prompts(store: Store) -> tuple[ArtifactRef, ArtifactRef]:
    """Store a tiny policy, most of whose responses end with the stop token, and a shard of prompts."""
    policy = _prepare_policy(store, ArithmeticSettings(), WARM_START)
    rows = [
        {"prompt_id": one.prompt_id, "prompt": one.prompt, "answer": str(one.answer), "level": one.level, "chat": False}
        for one in PROBLEMS
    ]
    with store.write("prompts", settings={}, parents={}, seed=0) as draft:
        write_table(draft.path / "prompts.parquet", rows, PROMPTS)
    return policy, draft.ref


def measure(repeats: int) -> Measurement:
    """Measure both."""
    with tempfile.TemporaryDirectory() as folder:
        store = Store.open(str(Path(folder) / "store"))
        policy, prompts = policy_and_prompts(store)
        weights = store.path(policy, without=OPTIMIZER)
        rows = read_table(store.path(prompts) / "prompts.parquet").to_pylist()
        tokenizer = load_tokenizer(weights)
        engine = engine_of(weights, policy.digest, SETTINGS.engine)
        numbers = itertools.count()
        token_counts: dict[str, set[int]] = {STEP: set(), ENGINE: set()}
        samples, limits = range(SETTINGS.responses_per_prompt), (engine.context_tokens, SETTINGS.max_new_tokens)
        requests = [
            build_requests(tokenise_all(tokenizer, part, *limits), samples, "stage 0", 0)
            for part in prompts_by_call(rows, SETTINGS.prompts_per_call)
        ]

        def run_engine() -> float:
            start, tokens = time.perf_counter(), 0
            for part in requests:
                sampling = Sampling(SETTINGS.max_new_tokens, SETTINGS.temperature)
                tokens += sum(len(one.token_ids) for one in engine.generate(part, sampling, ignore_progress))
            token_counts[ENGINE].add(tokens)
            return tokens / (time.perf_counter() - start)

        def run_step() -> float:
            # With another key of the work, the step does not reuse the parts of an earlier repeat.
            own = Store(store.ref, "generate", "benchmark", str(next(numbers)))
            start = time.perf_counter()
            rollouts = generate_shard(own, SETTINGS, policy, prompts, 0, 0)
            seconds = time.perf_counter() - start
            responses = read_table(store.path(rollouts) / "rollouts.parquet")["response_token_ids"].to_pylist()
            token_counts[STEP].add(tokens := sum(map(len, responses)))
            return tokens / seconds

        run_step(), run_engine()
        values = measure_interleaved({STEP: run_step, ENGINE: run_engine}, repeats, "rollouts")
        assert token_counts[STEP] == token_counts[ENGINE], token_counts
    responses = len(PROBLEMS) * SETTINGS.responses_per_prompt
    return Measurement(
        name="rollouts",
        what=f"Generation of {responses:,} responses by a tiny policy.",
        unit="tokens/s",
        ways=values,
        ratios=[ratio(values, STEP, ENGINE, 0.95)],
        facts={"responses": responses, "threads": torch.get_num_threads()},
        finding=FINDING,
    )
