"""Settings of every step. A step takes only settings that can change its output."""

from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from tasks.settings.base import Day, FilePlace, Kinds, ModelPlace, Number, Settings, StorePlace, Template
from tasks.settings.data_sets import (
    SHARE_OF_THE_HUB,
    TRAINING_SETS,
    ArithmeticSettings,
    SourceSettings,
    TrainingSetSettings,
)
from tasks.settings.devices import BackendSettings, EngineSettings, LoraSettings, TorchSettings, TransformersSettings
from tasks.settings.objective import ObjectiveSettings
from tasks.settings.presets import MODIFIERS, PRESETS, resolve


class WarmStartSettings(Settings):
    """Supervised learning before reinforcement learning, after which the tiny policy is sometimes correct."""

    working_updates: int = Field(260, ge=0)
    """Number of updates on examples that all show the working."""
    guessing_updates: int = Field(60, ge=0)
    """Number of later updates, on examples of which the share ``guess_share`` answers without the working."""
    guess_share: Number = Field(0.6, ge=0, le=1)
    """Share of these examples that answer without the working, with a guess near the gold answer."""
    examples_per_update: int = Field(128, ge=1)
    """Number of examples of one update of the warm start."""
    learning_rate: Number = Field(3e-3, gt=0)
    """Largest learning rate of the warm start."""
    guess_spread: int = Field(12, ge=1)
    """Largest difference of a guess from the gold answer."""


class TinyPolicySettings(Settings):
    """A Qwen3-style language model with a character tokenizer, which the run makes and warm-starts itself."""

    hidden_size: int = Field(128, ge=8)
    """Width of the residual stream."""
    layers: int = Field(4, ge=1)
    """Number of transformer layers."""
    heads: int = Field(4, ge=1)
    """Number of attention heads of a layer; twice as many must divide hidden_size."""
    key_value_heads: int = Field(2, ge=1)
    """Number of heads for keys and values (grouped-query attention); must divide heads."""
    intermediate_size: int = Field(384, ge=8)
    """Width of the gated linear unit."""
    context_tokens: int = Field(128, ge=16)
    """Largest length of prompt and response together, in tokens."""
    warm_start: WarmStartSettings = WarmStartSettings()

    @model_validator(mode="after")
    def _heads_divide(self) -> "TinyPolicySettings":
        if self.hidden_size % (2 * self.heads) or self.heads % self.key_value_heads:
            raise ValueError(
                f"hidden_size {self.hidden_size}, heads {self.heads}, key_value_heads {self.key_value_heads}; "
                "allowed: 2 x heads divides hidden_size and key_value_heads divides heads"
            )
        return self


class PolicySettings(Settings):
    """The base policy: a Hugging Face causal language model, or a tiny one. Give exactly one of path and tiny."""

    path: ModelPlace | None = None
    """A folder, an ``s3://`` prefix, or the name of a model on the Hugging Face hub."""
    revision: str | None = None
    """A commit, tag or branch on the hub. Only a commit always names the same model."""
    trust_remote_code: bool = False
    """Run Python files that come with the model, in every step that loads it."""
    tiny: TinyPolicySettings | None = None

    @model_validator(mode="after")
    def _one_source(self) -> "PolicySettings":
        self.one_of("path", "tiny")
        if self.revision is not None and self.path is None:
            raise ValueError(f"revision {self.revision!r} without path; allowed: null")
        return self


class PromptsSettings(Settings):
    """Source of the prompts, and their number per stage. Give exactly one of arithmetic, path and source."""

    prompts_per_stage: int = Field(ge=1)
    """Number of prompts of a stage, all of them different. The training set must have as many."""
    arithmetic: ArithmeticSettings | None = None
    path: FilePlace | None = None
    """A JSON-lines, JSON or parquet file, or a folder of such files: a local path or an ``s3://`` address. The columns
    are prompt, answer and, optionally, prompt_id."""
    source: SourceSettings | None = None
    """The name of a known training set, such as dapo (``mu-grpo data`` lists them), or a source with other fields."""
    held_out_path: FilePlace | None = None
    """A file for evaluation, with the fields of path or source. When null, a hash of the rows' ids chooses the share
    that is held out."""
    held_out_share: Number = Field(0.1, ge=0, lt=1)
    """Share of the rows of path or source that is held out, if held_out_path is null. Above 0, at least one of two or
    more rows is held out."""
    overlap_words: int = Field(13, ge=0)
    """Leave out training prompts that have this many consecutive words in common with a problem of a benchmark of the
    run, and those that are equal to such a problem. 0: leave out only equal prompts."""
    max_unusable_share: Number | None = Field(None, ge=0, le=1)
    """Largest share of rows that cannot be trained on, because a field is missing or empty, an id is repeated, or the
    verifier cannot read the gold answer. A larger share is an error; otherwise these rows are left out, counted and
    listed. When null, it is 0.05 for a data set on the hub, and else 0."""
    template: Template = "{prompt}"
    """The text that the policy continues; ``{prompt}`` stands for the prompt."""
    chat: bool = False
    """Put the text into the tokenizer's chat template as a user's message."""
    date: Day = "26 Jul 2024"
    """The date that a chat template with today's date, such as Llama 3's, writes as today's, so that prompts do not
    depend on the clock. The default is the date that Llama 3's templates fall back to."""
    prompts_per_shard: int = Field(512, ge=1)
    """Number of prompts of one generation task."""

    @field_validator("source", mode="before")
    @classmethod
    def _source_of_name(cls, value: Any) -> Any:
        if not isinstance(value, str):
            return value
        if value not in TRAINING_SETS:
            raise ValueError(f"no training set is known by this name; known: {', '.join(TRAINING_SETS)}")
        return TRAINING_SETS[value].source

    @model_validator(mode="after")
    def _one_source(self) -> "PromptsSettings":
        self.one_of("path", "arithmetic", "source")
        if self.held_out_path is not None and self.arithmetic is not None:
            raise ValueError(f"held_out_path {self.held_out_path!r} without path or source; allowed: null")
        if self.held_out_share != 0.1 and self.arithmetic is not None:
            raise ValueError(f"held_out_share {self.held_out_share} with arithmetic; set arithmetic.held_out_share")
        return self

    @property
    def rows(self) -> SourceSettings:
        """Return the source of the training rows."""
        return self.source or SourceSettings(path=self.path, arithmetic=self.arithmetic)

    @property
    def held_out(self) -> SourceSettings | None:
        """Return the source of the held-out rows; None if no rows are held out."""
        if self.held_out_path is not None:
            fields = self.rows.model_dump(include={"prompt", "answer", "id", "gold"})
            return SourceSettings(path=self.held_out_path, **fields)
        if self.arithmetic is not None:
            return self.rows
        share = self.rows.share * self.held_out_share
        return self.rows.model_copy(update={"share": share}) if share else None

    @property
    def training_set(self) -> TrainingSetSettings:
        """Return the settings that determine the rows of the training set."""
        share, is_split = self.max_unusable_share, self.held_out_path is not None or self.arithmetic is not None
        return TrainingSetSettings(
            source=self.rows,
            held_out_share=0.0 if is_split else self.held_out_share,
            overlap_words=self.overlap_words,
            max_unusable_share=share if share is not None else SHARE_OF_THE_HUB if self.rows.hub else 0.0,
        )


class RolloutSettings(Settings):
    """Sampling of responses for training.

    Samplers that truncate the distribution are refused: they renormalise probabilities, so ratios would be silently
    wrong.
    """

    responses_per_prompt: int = Field(ge=1)
    """Size of a group: number of responses to one prompt, which are compared with each other."""
    max_new_tokens: int = Field(ge=1)
    """Largest length of a response, in tokens."""
    temperature: Number = 1.0
    """Sampling temperature; only 1 is allowed."""
    top_p: Number = 1.0
    """Nucleus sampling; only 1 is allowed, which turns it off."""
    top_k: int = 0
    """Top-k sampling; only 0 is allowed, which turns it off."""
    engine: EngineSettings = TransformersSettings()
    max_missing_share: Number = Field(0.0, ge=0, le=1)
    """Largest share of a shard's responses (of a stage's, where generation and training alternate) that cannot be
    generated, because the prompt fills the context or the engine failed. A larger share stops the step; otherwise these
    responses are counted, listed and left out."""
    responses_per_part: int = Field(1024, ge=1)
    """Responses, in whole groups, that a shard samples at once and then saves. An interruption loses at most these, and
    the engine waits for the longest of them: with long responses, take several times engine.batch_size."""

    @property
    def prompts_per_call(self) -> int:
        """Return the number of prompts of a call of the engine, which generates whole groups, and at least one."""
        return max(1, self.responses_per_part // self.responses_per_prompt)

    @model_validator(mode="after")
    def _no_truncation(self) -> "RolloutSettings":
        for field, allowed in {"temperature": 1.0, "top_p": 1.0, "top_k": 0}.items():
            value = getattr(self, field)
            if value != allowed:
                raise ValueError(
                    f"{field} {value} in training rollouts; allowed: {allowed}, because the behavior log-probabilities "
                    "must be those of the whole distribution"
                )
        return self


class OptimizeSettings(Settings):
    """Training of the policy on the responses of a stage."""

    preset: str
    """The algorithm, by the name of its row of settings of the objective; ``mu-grpo algorithms`` lists all."""
    modifier: Literal["none", "tis", "mis", "bypass"] = "none"
    """Correction, added to the preset, for an engine whose probabilities differ from the trainer's."""
    objective: ObjectiveSettings = ObjectiveSettings()
    """The preset's row. Fields that are given here replace those of the row."""
    responses_per_update: int = Field(ge=1)
    """Number of responses of an update: a multiple of rollout.responses_per_prompt that divides the number of responses
    of a stage."""
    learning_rate: Number = Field(1e-6, gt=0)
    """Learning rate of AdamW after the warm-up."""
    warmup_updates: int = Field(0, ge=0)
    """Number of updates, counted over all stages, in which the learning rate rises linearly from 0."""
    weight_decay: Number = Field(0.01, ge=0)
    """Decoupled weight decay of AdamW."""
    adam_beta1: Number = Field(0.9, ge=0, lt=1)
    """Decay rate of AdamW's running mean of gradients."""
    adam_beta2: Number = Field(0.999, ge=0, lt=1)
    """Decay rate of AdamW's running mean of squared gradients."""
    max_grad_norm: Number = Field(1.0, gt=0)
    """Largest L2 norm of the gradient of an update; larger gradients are clipped to it."""
    tokens_per_micro_batch: int = Field(8192, ge=1)
    """Largest number of tokens of a micro-batch, including the padding of policies that do not support packing. A
    longer response is a micro-batch of its own."""
    logp_chunk_tokens: int = Field(1024, ge=1)
    """Largest number of tokens whose logits are in memory at the same time."""
    backend: BackendSettings = TorchSettings()
    lora: LoraSettings | None = None
    """Train low-rank adapters and keep the base policy's weights frozen; train all weights when null."""
    max_dropped_share: Number = Field(0.01, ge=0, le=1)
    """Largest share of a stage's responses whose log-probabilities are not finite. A larger share stops the stage;
    otherwise these responses are left out and counted."""
    max_logp_mismatch: Number = Field(0.05, gt=0)
    """Largest mean difference between the engine's and the trainer's log-probabilities of the same policy. A larger one
    stops the stage."""

    @model_validator(mode="before")
    @classmethod
    def _fill_from_preset(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        preset, modifier = values.get("preset"), values.get("modifier", "none")
        given = values.get("objective", {})
        if isinstance(given, ObjectiveSettings):
            given = given.model_dump(mode="json", exclude_unset=True)
        # These are lists because a wrong value may have no hash.
        if preset in [*PRESETS] and modifier in [*MODIFIERS] and isinstance(given, dict):
            return {**values, "objective": ObjectiveSettings.merge(resolve(preset, modifier), given)}
        return values

    @field_validator("preset")
    @classmethod
    def _preset_is_known(cls, value: str) -> str:
        if value not in PRESETS:
            raise ValueError(f"unknown preset; allowed: {', '.join(PRESETS)}")
        return value


class TrackerSettings(Kinds):
    """Tracker that shows the metrics of a run while it runs, in addition to its report."""

    kind: str = "none"
    """Kind of tracker. wandb is offline unless WANDB_API_KEY is set; TensorBoard's files are in the store."""


class NoTracker(TrackerSettings):
    """No tracker."""

    kind: Literal["none"] = "none"


class _Tracked(Settings):
    run: str = ""
    """Id of the run in the tracker. When empty, it follows from the settings, so that a resumed run is shown as one."""


class TensorBoardTracker(_Tracked, TrackerSettings):
    """TensorBoard."""

    kind: Literal["tensorboard"] = "tensorboard"


class WandbTracker(_Tracked, TrackerSettings):
    """Weights & Biases."""

    kind: Literal["wandb"] = "wandb"
    project: str = "mu-grpo"
    """Project of the run in wandb."""


class OperationSettings(Settings):
    """Execution of a run: checkpoints, tracker, mirror of data sets. These settings are in no cache key."""

    updates_per_checkpoint: int = Field(32, ge=1)
    """Number of updates between checkpoints of the whole training state: an interruption loses at most these."""
    checkpoints_kept: int = Field(2, ge=1)
    """Number of checkpoints of an unfinished step that are kept; older ones are deleted."""
    tracker: TrackerSettings = NoTracker()
    mirror: StorePlace | None = None
    """A folder or an ``s3://`` prefix that replaces the hub for data sets, with their files at
    ``<mirror>/<data set>/<file>``."""

    def named(self, run: str) -> Self:
        """Return these settings with an id of the run for its tracker, unless there is one, or no tracker."""
        if not isinstance(self.tracker, _Tracked) or self.tracker.run:
            return self
        return self.model_copy(update={"tracker": self.tracker.model_copy(update={"run": run})})
