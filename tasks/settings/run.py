"""Settings of a whole run: checks across sections, derived numbers, and overrides of single fields."""

import hashlib
import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

import yaml
from pydantic import ConfigDict, Field, model_validator

from tasks.errors import SettingsError
from tasks.settings.base import WHOLE_RUN, FlyteModel, Settings, StorePlace, flat, load_yaml, read_yaml
from tasks.settings.devices import EngineSettings
from tasks.settings.evaluate import EvaluateSettings, Measurement, check_kind, measurements
from tasks.settings.objective import ObjectiveSettings
from tasks.settings.presets import resolve
from tasks.settings.steps import OperationSettings, OptimizeSettings, PolicySettings, PromptsSettings, RolloutSettings
from tasks.settings.verify import MathVerifySettings, VerifySettings, without_digest

STAGES = 4
"""Number of stages of a run, unless its workflow has another number in its name."""


class RunSettings(Settings):
    """All settings of a run: the inputs of the workflows, and the keys of a file in configs/."""

    policy: PolicySettings
    prompts: PromptsSettings
    rollout: RolloutSettings
    verify: VerifySettings = MathVerifySettings()
    optimize: OptimizeSettings
    evaluate: EvaluateSettings
    operation: OperationSettings = OperationSettings()
    updates_per_rollout: int | None = Field(None, ge=1)
    """mu, for the workflow in which generation and training alternate. When null, all updates of a stage use the same
    rollouts."""
    store: StorePlace = "runs"
    """The store of the run's artifacts: a folder or ``s3://bucket/prefix``."""
    seed: int = Field(0, ge=0, lt=2**63)
    """Seed of all random choices of a run: order of prompts, responses, initial weights of a tiny policy."""

    @classmethod
    def title(cls) -> str:
        """Return the title of a whole run, whose fields have no prefix in messages."""
        return WHOLE_RUN

    @classmethod
    def read(cls, path: Path, overrides: str = "") -> Self:
        """Read settings from a YAML file, with single fields overridden.

        Raises:
            SettingsError: the file cannot be read, or the settings are wrong.
        """
        return cls.merged(read_yaml(path, cls.model_fields, "configs/tiny-cpu.yaml"), overrides)

    @classmethod
    def merged(cls, values: dict[str, Any], overrides: str) -> Self:
        """Return settings from plain values with single fields overridden, as in ``optimize.preset=relaxed seed=1``.

        All commands and workflows call this method, so that overrides mean the same everywhere: they are merged in
        before anything is checked.

        Raises:
            SettingsError: the settings are wrong.
        """
        return cls.parse(_apply_changes(values, _parse_overrides(overrides)))

    def given(self) -> dict[str, Any]:
        """Return plain values for overrides, without the preset's row, so that another preset can bring its own row."""
        values = self.model_dump(mode="json")
        return {**values, "optimize": _without_row(values["optimize"])}

    @property
    def responses_per_stage(self) -> int:
        """Return the number of responses of a stage."""
        return self.prompts.prompts_per_stage * self.rollout.responses_per_prompt

    @property
    def updates_per_stage(self) -> int:
        """Return the number of updates of a stage."""
        batches = self.responses_per_stage // self.optimize.responses_per_update
        return batches * self.optimize.objective.schedule.updates_per_batch

    @property
    def mu(self) -> int:
        """Return the number of updates per refresh of the rollouts."""
        return self.updates_per_rollout or self.updates_per_stage

    def named_operation(self, verdicts: str = "") -> OperationSettings:
        """Return ``operation`` with an id of the run for its tracker.

        ``verdicts`` is the digest of those on which a stored run is trained further, if this run does so.
        """
        values = self.result_values() | ({"verdicts": verdicts} if verdicts else {})
        digest = hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()
        return self.operation.named(f"{self.optimize.preset}-mu{self.mu}-seed{self.seed}-{digest[:8]}")

    @property
    def measurements(self) -> list[Measurement]:
        """Return a measurement for each benchmark of the run."""
        return measurements(self.evaluate, self.prompts, self.verify, self.rollout.engine)

    @property
    def chats(self) -> bool:
        """Return True if some prompts go through the chat template of the policy's tokenizer."""
        return self.prompts.chat or any(bool(measurement.benchmark.chat) for measurement in self.measurements)

    @property
    def alternates(self) -> bool:
        """Return True if generation and training alternate in one task, as in ``workflows/grpo.py``."""
        return self.updates_per_rollout is not None

    @property
    def evaluation_engine(self) -> EngineSettings:
        """Return the engine of the evaluations."""
        return self.evaluate.engine or self.rollout.engine

    @property
    def shards(self) -> int:
        """Return the number of generation tasks of a stage."""
        return -(-self.prompts.prompts_per_stage // self.prompts.prompts_per_shard)

    @model_validator(mode="after")
    def _groups_fit(self) -> Self:
        group, update = self.rollout.responses_per_prompt, self.optimize.responses_per_update
        scale = self.optimize.objective.advantage.scale
        if group == 1 and scale not in ("none", "batch_std"):
            raise ValueError(
                f"rollout.responses_per_prompt: 1 with optimize.objective.advantage.scale {scale!r}: one response "
                "has no standard deviation; allowed: 2 or more, or scale none or batch_std"
            )
        if update % group:
            raise ValueError(
                f"optimize.responses_per_update: {update} would split a group of rollout.responses_per_prompt {group}; "
                f"allowed: multiples of {group}"
            )
        if self.responses_per_stage % update:
            raise ValueError(
                f"optimize.responses_per_update: {update} does not divide the {self.responses_per_stage} responses of "
                f"a stage (prompts.prompts_per_stage {self.prompts.prompts_per_stage} x rollout.responses_per_prompt "
                f"{group}); allowed: its divisors that are multiples of {group}"
            )
        return self

    @model_validator(mode="after")
    def _turns_fit(self) -> Self:
        if self.updates_per_rollout is not None and self.updates_per_stage % self.updates_per_rollout:
            raise ValueError(
                f"updates_per_rollout: {self.updates_per_rollout} does not divide the {self.updates_per_stage} updates "
                "of a stage; allowed: its divisors"
            )
        parallel = self.rollout.engine.tensor_parallel
        if self.updates_per_rollout is not None and parallel > 1:
            raise ValueError(
                f"rollout.engine.tensor_parallel: {parallel} with updates_per_rollout {self.updates_per_rollout}: each "
                "process generates on the one GPU that it trains on; allowed: 1"
            )
        per_batch = self.optimize.objective.schedule.updates_per_batch
        if self.mu % per_batch:
            raise ValueError(
                f"updates_per_rollout: {self.mu} would end inside a batch of "
                f"optimize.objective.schedule.updates_per_batch {per_batch}; allowed: multiples of {per_batch}"
            )
        return self

    @model_validator(mode="after")
    def _tiny_policy_fits(self) -> Self:
        if self.policy.tiny is not None:
            if self.prompts.arithmetic is None:
                raise ValueError("policy.tiny: is warm-started on arithmetic, so prompts.arithmetic must be given")
            if self.chats:
                raise ValueError("prompts.chat: true with policy.tiny, which has no chat template; allowed: false")
            lengths = {"rollout": self.rollout.max_new_tokens, "evaluate": self.evaluate.max_new_tokens}
            lengths |= {one.benchmark.name: one.evaluation.max_new_tokens for one in self.measurements}
            for name, tokens in lengths.items():
                if tokens >= self.policy.tiny.context_tokens:
                    raise ValueError(
                        f"{name}.max_new_tokens: {tokens} leaves no room for a prompt in "
                        f"policy.tiny.context_tokens {self.policy.tiny.context_tokens}"
                    )
        return self

    @model_validator(mode="after")
    def _answers_are_of_one_kind(self) -> Self:
        check_kind(self.verify.kind, self.prompts.arithmetic, "prompts")
        _ = self.measurements  # This checks the benchmarks.
        return self


Section = TypeVar("Section", bound=Settings)


class Given(FlyteModel, Generic[Section]):
    """Plain values of a section, which are checked after overrides are merged in (``RunSettings.merged``).

    Flyte parses inputs before any task runs. A check at that time would refuse a file that its overrides correct.
    """

    model_config = ConfigDict(extra="allow")

    @classmethod
    def model_validate_json(cls, json_data: str | bytes | bytearray, **_: Any) -> Self:
        """Return the values in JSON; Flyte calls this for inputs on the command line and between tasks."""
        values = json.loads(json_data)
        if not isinstance(values, dict):
            raise SettingsError(f"{cls._section().title()}: got {values!r}; allowed: fields with values")
        return super().model_validate(values)

    @classmethod
    def model_json_schema(cls, *choices: Any, **named: Any) -> dict[str, Any]:
        """Return the schema of the section, for forms that start a workflow."""
        return cls._section().model_json_schema(*choices, **named)

    @classmethod
    def _section(cls) -> type[Settings]:
        section: type[Settings] = cls.__pydantic_generic_metadata__["args"][0]
        return section


def chosen_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings of a run by full names, as in overrides, without the fields that equal those of the preset's row.

    Args:
        settings: plain values from ``result_values``. If this version of the code cannot parse their objective, all
            fields are returned.
    """
    try:
        return flat({**settings, "optimize": _without_row(settings.get("optimize") or {})})
    except (KeyError, SettingsError):
        return flat(settings)


def _without_row(optimize: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings of ``optimize`` without the fields of the objective that equal those of the preset's row."""
    row = ObjectiveSettings.parse(resolve(optimize["preset"], optimize["modifier"])).model_dump(mode="json")
    return {**optimize, "objective": _difference(optimize["objective"], row)}


_SOURCES = {"path", "tiny", "arithmetic", "source"}
_SOURCE_FIELDS = _SOURCES | {"revision", "held_out_path"}
_QUOTES = ". Quote a value that has spaces, and the whole for the shell: \"evaluate.benchmarks='[{name: a}, b]'\""


def _parse_overrides(text: str) -> dict[str, Any]:
    """Return ``a.b=1 c=x`` as nested dictionaries; values are read as YAML."""
    changes: dict[str, Any] = {}
    try:
        words = shlex.split(text)
    except ValueError:
        raise SettingsError(f"overrides: {text!r} has a quotation mark that is not closed; close it.") from None
    for word in words:
        name, separator, value = word.partition("=")
        if not separator or not name:
            raise SettingsError(
                f"overrides: {word!r} is not of the form field=value, as in optimize.preset=relaxed{_QUOTES}"
            )
        try:
            change: Any = load_yaml(value)
        except yaml.YAMLError as error:
            problem = getattr(error, "problem", error)
            raise SettingsError(f"overrides: {name}: {value!r} is not YAML ({problem}){_QUOTES}") from None
        for key in reversed(name.split(".")):
            change = {key: change}
        changes = Settings.merge(changes, change)
    return changes


def _apply_changes(values: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Return values with changes merged in; a new source drops the fields of the old one.

    The digest of a function's source is dropped too, because the source may have changed since it was computed.
    """
    values = dict(values)
    for name in ("policy", "prompts"):
        old, new = values.get(name), changes.get(name)
        if not isinstance(old, dict) or not isinstance(new, dict):
            continue
        # A change inside the old source keeps it; only another source replaces it.
        if any(old.get(key) is None for key in _SOURCES & set(new)):
            values[name] = {key: value for key, value in old.items() if key not in _SOURCE_FIELDS}
    merged = RunSettings.merge(values, changes)
    return {**merged, "verify": without_digest(merged["verify"])} if isinstance(merged.get("verify"), dict) else merged


def _difference(values: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
    """Return the values that differ from those of a row; a section of another kind is returned whole."""
    differing = {}
    for key, value in values.items():
        if isinstance(value, dict) and value.keys() == row[key].keys():
            value = _difference(value, row[key])
        if value != row[key] and value != {}:
            differing[key] = value
    return differing
