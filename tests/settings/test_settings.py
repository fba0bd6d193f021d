"""Settings: strict, readable when wrong, overridable field by field."""

import re
from pathlib import Path

import pytest

from tasks.errors import SettingsError
from tasks.settings import PRESETS, EvaluationSettings, ObjectiveSettings, RolloutSettings, RunSettings
from tasks.settings.base import result_values
from tasks.settings.run import chosen_settings
from tests.settings import override
from tools import ROOT

NO_RUN = ("prices.yaml", "reproduce-tiny.yaml")
CONFIG = ROOT / "configs/tiny-cpu.yaml"
DEEPSPEED = "optimize.backend.kind=deepspeed optimize.backend.deepspeed"
STAGE_1 = "'{zero_optimization: {stage: 1}}'"
CONFIGS = sorted(path for path in CONFIG.parent.glob("*.yaml") if path.name not in NO_RUN)


@pytest.fixture
def run() -> RunSettings:
    return RunSettings.read(CONFIG)


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_every_config_is_valid_and_survives_a_round_trip(path: Path) -> None:
    """Learning rates are written as 1e-4, which YAML reads as a text."""
    settings = RunSettings.read(path)
    assert RunSettings.model_validate_json(settings.model_dump_json()) == settings


def test_settings_that_change_no_result_enter_no_key(run: RunSettings) -> None:
    limits = "verify.max_failure_share=0.5 optimize.max_logp_mismatch=1 rollout.max_missing_share=0.5"
    moved = override(run, f"store=elsewhere verify.workers=7 operation.checkpoints_kept=5 {limits}")
    assert moved.result_values() == run.result_values() == result_values(moved.model_dump(mode="json"))
    assert override(run, "verify.memory_mib=512").result_values() != run.result_values()


def test_the_settings_that_were_chosen_are_named_as_overrides_name_them(run: RunSettings) -> None:
    for overrides in ("optimize.preset=relaxed", "optimize.learning_rate=2e-5 seed=3"):
        names = [part.split("=")[0] for part in overrides.split()]
        before, after = chosen_settings(run.result_values()), chosen_settings(override(run, overrides).result_values())
        assert [name for name in before if before[name] != after[name]] == sorted(names, key=list(before).index)
        assert before.keys() == after.keys()
    veto = chosen_settings(override(run, "optimize.objective.veto.kappa=1.25").result_values())
    assert veto["optimize.objective.veto.kappa"] == 1.25
    assert chosen_settings({"optimize": {"preset": "of a later release"}}) == {"optimize.preset": "of a later release"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("nonsense=1", "nonsense: unknown field (value 1)"),
        ("rollout.max_new_tokens=many", "rollout.max_new_tokens: got 'many'; should be a valid integer"),
        ("rollout.max_new_tokens=1.5", "rollout.max_new_tokens: got 1.5; should be a valid integer"),
        ("rollout.max_new_tokens=0", "rollout.max_new_tokens: got 0; should be greater than or equal to 1"),
        ("prompts.chat=3", "prompts.chat: got 3; should be a valid boolean"),
        ("prompts.chat=true", "prompts.chat: true with policy.tiny, which has no chat template; allowed: false"),
        ("prompts.date='31 Feb 2024'", "prompts.date: got '31 Feb 2024'; allowed: a day as in 26 Jul 2024"),
        ("rollout.temperature=0.7", "temperature 0.7 in training rollouts; allowed: 1.0"),
        ("rollout.top_p=0.9", "top_p 0.9 in training rollouts; allowed: 1.0"),
        ("rollout.top_k=50", "top_k 50 in training rollouts; allowed: 0"),
        ("rollout.responses_per_prompt=1", "one response has no standard deviation; allowed: 2 or more, or scale none"),
        ("verify.kind=code", "verify.kind: code with prompts.arithmetic.as_code false; allowed: code with true"),
        ("prompts.arithmetic.as_code=true", "verify.kind: math with prompts.arithmetic.as_code true; allowed: code"),
        ("verify.code.seconds=3", "verify.code: unknown field with kind math; allowed: with kind code"),
        ("verify.function=a:b", "verify.function: got 'a:b'; unknown field with kind math; allowed: with kind fun"),
        ("verify.kind=code verify.deadline_seconds=3", "verify.deadline_seconds: got 3; unknown field with kind code"),
        ("verify.kind=poetry", "verify.kind: got 'poetry'; should be 'math', 'code' or 'function'"),
        ("verify.kind=function", "verify.function: missing"),
        ("verify.kind=function verify.function=score", "got 'score'; allowed: a module, without .py, and a function"),
        ("optimize.responses_per_update=12", "would split a group of rollout.responses_per_prompt 8; allowed"),
        ("optimize.responses_per_update=264", "does not divide the 4096 responses"),
        ("updates_per_rollout=5", "updates_per_rollout: 5 does not divide the 16 updates"),
        ("optimize.preset=ppo", "optimize.preset: got 'ppo'; unknown preset; allowed: mu_grpo, relaxed, grpo, dr_grpo"),
        ("optimize.objective.gate.low=6", "optimize.objective.gate: low 6.0 with high 5.0; allowed: low < high"),
        ("optimize.objective.gate.high=0.28", "low 0.0 with high 0.28; allowed: low < high, with 1 between them"),
        ("optimize.objective.gate.width=1", "optimize.objective.gate.width: unknown field (value 1)"),
        ("optimize.preset=rec_ring_nois optimize.objective.gate.outer_low=0.9", "allowed: outer_low < low"),
        ("optimize.preset=rec_ring_nois optimize.objective.gate.bounds=balance", "with kind ring; allowed: with kind"),
        ("optimize.preset=m2po optimize.objective.gate.low=0.5", "allowed: with bounds static or balance"),
        ("optimize.preset=cispo optimize.objective.gate.high=1.4", "gate.high: got 1.4; unknown field with kind none"),
        ("optimize.objective.weight.high=3.0", "unknown field with kind ratio; allowed: with kind clipped or preserve"),
        ("optimize.preset=grpo optimize.objective.veto.trigger_count=3", "unknown field with scope off; allowed: with"),
        ("optimize.objective.regulariser.coefficient=0.1", "regulariser.coefficient: got 0.1; unknown field with kind"),
        ("optimize.objective.regulariser.kind=likelihood", "optimize.objective.regulariser.coefficient: missing"),
        ("optimize.preset=dr_grpo optimize.objective.denominator=kept", "denominator kept with aggregation"),
        ("optimize.preset=reinforce optimize.objective.ratio.level=sequence_product", "do not use it; allowed"),
        ("optimize.preset=minpro optimize.objective.weight.kind=one", "do not use it; allowed: level token"),
        ("optimize.objective.schedule.batches_per_proximal=2", "batches_per_proximal 2 without a proximal policy"),
        ("optimize.objective.advantage.temperature=2", "temperature 2.0 with baseline mean; allowed: with logavgexp"),
        ("optimize.objective.ratio.behavior_cap=2", "unknown field with reference behavior; allowed: with reference"),
        ("rollout.engine.eager=true", "rollout.engine.eager: got True; unknown field with kind transformers"),
        ("rollout.engine.tensor_parallel=2", "tensor_parallel 2 with kind transformers; allowed: 1, or kind vllm"),
        ("optimize.backend.processes=2", "processes 2 with kind torch; allowed: 1, or kind deepspeed"),
        ("optimize.backend.deepspeed=zero2.json", "unknown field with kind torch; allowed: with kind deepspeed"),
        ("optimize.backend.kind=deepspeed", "deepspeed.zero_optimization: {}; allowed: a section with stage 1, 2 or 3"),
        (f"{DEEPSPEED}='{{zero_optimization: true}}'", "deepspeed.zero_optimization: True; allowed: a section"),
        (f"{DEEPSPEED}='{{zero_optimization: {{stage: null}}}}'", "{'stage': None}; allowed: a section"),
        (f"{DEEPSPEED}='{{zero_optimization: {{stage: 2, offload_optimizer: cpu}}}}'", "'cpu', 'stage': 2}; allowed:"),
        (f"{DEEPSPEED}='{{zero_optimization: {{stage: 2, round_robin_gradients: true}}}}'", "true; allowed: false"),
        (f"{DEEPSPEED}=nowhere.json", "cannot be read: [Errno 2] No such file or directory: 'nowhere.json'"),
        (f"{DEEPSPEED}={STAGE_1} optimize.backend.dtype=bfloat16", "dtype bfloat16; allowed: 2 or 3"),
        (f"{DEEPSPEED}='{{zero_optimization: {{stage: 1}}, optimizer: {{}}}}'", "deepspeed.optimizer: is decided by"),
        (f"{DEEPSPEED}='{{zero_optimization: {{stage: 2}}, torch_autocast: {{}}}}'", "torch_autocast: is decided by"),
        (f"{DEEPSPEED}='{{zero_optimization: {{stage: 2}}, gradient_allreduce_op: sum}}'", "op: is decided by"),
        (f"{DEEPSPEED}='{{zero_optimization: {{stage: 2}}, managed_gradient_accumulation: false}}'", "is decided by"),
        ("operation.tracker.project=mine", "operation.tracker.project: got 'mine'; unknown field with kind none"),
        ("optimize.preset=bapo optimize.objective.gate.balance.low_max=0.5", "allowed: maxima that are not below"),
        ("optimize.preset=bapo optimize.objective.gate.balance.low_max=1.3", "with high 1.2; allowed: low_max < high"),
        ("optimize.objective.weight.kind=preserve", "preserve with gate.kind one_side, which removes the tokens"),
        ("optimize.preset=opmd optimize.objective.denominator=kept", "kept with regulariser.kind behavior_l2"),
        ("optimize.learning_rate=.inf", "optimize.learning_rate: got inf"),
        ("optimize.preset=topr optimize.objective.weight.negative=[2,1]", "negative: 2 to 1; allowed: 0 <= smallest"),
        ("optimize.preset=gspo optimize.objective.gate.bounds=second_moment", "allowed: level token"),
        ("optimize.preset=gspo optimize.objective.gate.kind=centred", "allowed: level token"),
        ("optimize.preset=decoupled_ppo optimize.objective.gate.kind=centred", "the ratio is centred already"),
        ("optimize.modifier=mis optimize.objective.mismatch.low=3", "mismatch: low 3.0 with high 2.0; allowed: low <"),
        ("optimize.objective.veto.statistic=sequence_geo", "scope suffix with statistic sequence_geo; allowed: resp"),
        ("optimize.preset=[grpo,mu_grpo]", "optimize.preset: got ['grpo', 'mu_grpo']; should be a valid string"),
        ("optimize.modifier=[tis]", "optimize.modifier: got ['tis']; should be 'none', 'tis', 'mis' or 'bypass'"),
        ("evaluate.benchmarks='[{name: [aime24]}]'", "benchmarks.0.name: got ['aime24']; should be a valid string"),
        ("optimize.objective.schedule.updates_per_batch=3 updates_per_rollout=4", "4 would end inside a batch"),
        ("optimize.objective.veto.direction=below", "kappa 2.0 with direction below; allowed: 0 < kappa < 1"),
        ("optimize.objective.veto.kappa=0.1", "kappa 0.1 with direction above; allowed: kappa > 1"),
        ("optimize.objective.veto.recompute=once_per_stage", "nothing could trigger"),
        ("policy.tiny=null", "none given; allowed: exactly one of path and tiny"),
        ("policy.revision=main", "revision 'main' without path"),
        ("prompts.arithmetic=null", "none given; allowed: exactly one of path, arithmetic and source"),
        ("prompts.held_out_path=x.jsonl", "held_out_path 'x.jsonl' without path"),
        ("prompts.held_out_share=0.3", "held_out_share 0.3 with arithmetic; set arithmetic.held_out_share"),
        ("prompts.template='Q: {prompt}'", "prompts.template: got {'Q': {'prompt': None}}; should be a valid string"),
        ("prompts.template=hello", "prompts.template: got 'hello'; allowed: a text that contains {prompt}"),
        ("prompts.arithmetic.levels=[9]", "prompts.arithmetic.levels.0: got 9"),
        (
            "evaluate.benchmarks='[{name: held_out, answer_type: function}]'",
            "answer_type function with verify.kind math",
        ),
        ("store=gs://bucket/runs", "store: got 'gs://bucket/runs'; allowed: a folder, or s3://bucket/prefix"),
        ("operation.mirror=https://mirror", "operation.mirror: got 'https://mirror'; allowed: a folder, or s3://"),
        ("prompts.held_out_path=s3:/x", "got 's3:/x'; allowed: a file or a folder, here or at s3://bucket/key"),
        ("rollout.max_new_tokens=128", "leaves no room for a prompt"),
        ("policy.tiny.hidden_size=60", "hidden_size 60, heads 4, key_value_heads 2; allowed: 2 x heads divides"),
    ],
)
def test_a_mistake_is_one_readable_message(run: RunSettings, change: str, message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        override(run, change)
    assert message in caught.value.message
    assert "pydantic" not in caught.value.message


def test_every_mistake_is_named_at_once(run: RunSettings) -> None:
    with pytest.raises(SettingsError, match=r"max_new_tokens: .*\n.*verify\.workers: got 0.*\n.*seed: got -1"):
        override(run, "rollout.max_new_tokens=x verify.workers=0 seed=-1")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        *((content, "") for content in (b"", b"[1, 2]", b"a: [", b"just words", b"\x7fELF\xd0\xff")),
        (b"seed: " + b"[" * 3000 + b"]" * 3000, ": not YAML: lists or dictionaries are nested too deeply"),
        (b"seed: 1\nrollout: {}\nseed: 2\n", ": not YAML: the key 'seed' is in line 1 already; remove one"),
    ],
)
def test_a_file_that_holds_no_settings_or_a_key_twice_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "run.yaml"
    path.write_bytes(content)
    with pytest.raises(SettingsError, match=re.escape(f"run.yaml{message}")):
        RunSettings.read(path)


@pytest.mark.parametrize(("old", "new"), [(old, new) for old in PRESETS for new in PRESETS])
def test_another_preset_brings_its_own_row_and_keeps_what_was_overridden(old: str, new: str) -> None:
    run = RunSettings.read(CONFIG, f"optimize.preset={old} optimize.objective.gate.dual_clip=12")
    objective = override(run, f"optimize.preset={new}").optimize.objective
    row = ObjectiveSettings.merge(PRESETS[new].row, {"gate": {"dual_clip": 12.0}})
    assert objective == ObjectiveSettings.parse(row)


def test_a_regulariser_keeps_a_coefficient_of_zero(run: RunSettings) -> None:
    given = override(run, "optimize.objective.regulariser='{kind: reference_kl, coefficient: 0.0}'")
    again = override(given, "seed=5").optimize.objective.regulariser
    assert (again.kind, again.coefficient) == ("reference_kl", 0.0)


def test_the_source_of_policy_or_prompts_can_be_replaced(run: RunSettings) -> None:
    other = override(run, "policy.path=some/model prompts.path=mine.jsonl")
    assert (other.policy.path, other.policy.tiny) == ("some/model", None)
    assert (other.prompts.path, other.prompts.arithmetic) == ("mine.jsonl", None)
    assert other.prompts.prompts_per_stage == run.prompts.prompts_per_stage


@pytest.mark.parametrize(
    ("text", "told"),
    [
        *((text, "Quote a value that has spaces, and the whole for") for text in ("seed", "=3", "seed 3")),
        ("evaluate.benchmarks=[{name: a}]", r"overrides: evaluate\.benchmarks: '\[\{name:' is not YAML \(.*\)\. Quote"),
        ("policy.tiny='{heads: 1, heads: 2}'", r"'\{heads: 1, heads: 2\}' is not YAML \(the key 'heads' is in"),
        ("policy.path='a b", "has a quotation mark that is not closed"),
    ],
)
def test_overrides_that_cannot_be_read(run: RunSettings, text: str, told: str) -> None:
    with pytest.raises(SettingsError, match=told):
        override(run, text)


@pytest.mark.parametrize(("group", "per_part", "prompts"), [(8, 64, 8), (8, 1, 1), (3, 1000, 333), (7, 50, 7)])
def test_a_call_of_an_engine_has_whole_groups(group: int, per_part: int, prompts: int) -> None:
    shared = {"max_new_tokens": 1, "responses_per_part": per_part}
    assert RolloutSettings(responses_per_prompt=group, **shared).prompts_per_call == prompts
    assert EvaluationSettings(samples_per_problem=group, **shared).problems_per_call == prompts
