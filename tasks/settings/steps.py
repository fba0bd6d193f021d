"""Settings of every step. A step takes those that can change its output, and no others."""

from typing import Any, Literal

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
    """Supervised learning that gives the tiny policy something for reinforcement learning to find."""

    working_updates: int = Field(260, ge=0)
    """Updates on examples that all show the working."""
    guessing_updates: int = Field(60, ge=0)
    """Updates after those, on examples of which ``guess_share`` answer at once."""
    guess_share: Number = Field(0.6, ge=0, le=1)
    """Share of examples that answer at once, with a guess near the truth."""
    examples_per_update: int = Field(128, ge=1)
    """Examples of one update of the warm start."""
    learning_rate: Number = Field(3e-3, gt=0)
    """Largest learning rate of the warm start."""
    guess_spread: int = Field(12, ge=1)
    """A guess is off by at most this much."""


class TinyPolicySettings(Settings):
    """A Qwen3-style language model with a character tokenizer, made and warm-started here."""

    hidden_size: int = Field(128, ge=8)
    """Width of the residual stream."""
    layers: int = Field(4, ge=1)
    """Number of transformer layers."""
    heads: int = Field(4, ge=1)
    """Attention heads of a layer; divides hidden_size."""
    key_value_heads: int = Field(2, ge=1)
    """Heads of keys and values (grouped-query attention); divides heads."""
    intermediate_size: int = Field(384, ge=8)
    """Width of the gated linear unit."""
    context_tokens: int = Field(128, ge=16)
    """Longest prompt plus response, in tokens."""
    warm_start: WarmStartSettings = WarmStartSettings()

    @model_validator(mode="after")
    def _heads_divide(self) -> "TinyPolicySettings":
        if self.hidden_size % self.heads or self.heads % self.key_value_heads:
            raise ValueError(
                f"hidden_size {self.hidden_size}, heads {self.heads}, key_value_heads {self.key_value_heads}; "
                "allowed: heads divides hidden_size and key_value_heads divides heads"
            )
        return self


class PolicySettings(Settings):
    """The base policy: a Hugging Face causal language model, or a tiny one that is made here. Give one of the two."""

    path: ModelPlace | None = None
    """A folder, an ``s3://`` prefix, or the name of a model on the Hugging Face hub."""
    revision: str | None = None
    """A commit, tag or branch on the hub; a commit always names the same model."""
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
    """Source of the prompts, and the number that a stage takes. Give exactly one of arithmetic, path and source."""

    prompts_per_stage: int = Field(ge=1)
    """Prompts that a stage samples responses to."""
    arithmetic: ArithmeticSettings | None = None
    path: FilePlace | None = None
    """A JSON-lines, JSON or parquet file, here or at an ``s3://`` address, or a folder of such files, with the columns
    prompt and answer, and optionally prompt_id."""
    source: SourceSettings | None = None
    """A known training set by its name, such as dapo (``mu-grpo data`` lists them), or rows with other fields."""
    held_out_path: FilePlace | None = None
    """A file of the same form for evaluation. Without it a share of the rows is held out, by a hash of their ids."""
    held_out_share: Number = Field(0.1, ge=0, lt=1)
    """Share of the rows of path or source, without held_out_path; above 0, at least one of several rows."""
    overlap_words: int = Field(13, ge=0)
    """Prompts that share so many words in a row with a problem of a benchmark of the run leave the training set; so do
    those that are equal to one. 0 asks for equal ones alone."""
    max_unusable_share: Number | None = Field(None, ge=0, le=1)
    """More rows that cannot be trained on are an error: a field is missing or empty, an id comes twice, or the verifier
    cannot read the gold answer. Up to it they are left out, counted and listed. 0 where it is not given, and 0.05 of a
    data set on the hub."""
    template: Template = "{prompt}"
    """The text that the policy continues; ``{prompt}`` stands for the prompt."""
    chat: bool = False
    """Put the text into the tokenizer's chat template as a user's message."""
    date: Day = "26 Jul 2024"
    """The day that a chat template with today's date, such as Llama 3's, takes for today: prompts depend on no clock.
    The default is the day that Llama 3's templates fall back to."""
    prompts_per_shard: int = Field(512, ge=1)
    """Prompts that one generation task takes."""

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
        return self

    @property
    def rows(self) -> SourceSettings:
        """Source of the rows of training."""
        return self.source or SourceSettings(path=self.path, arithmetic=self.arithmetic)

    @property
    def held_out(self) -> SourceSettings | None:
        """Source of the held-out rows; None when nothing is held out."""
        if self.held_out_path is not None:
            return SourceSettings(path=self.held_out_path)
        if self.arithmetic is not None:
            return self.rows
        return self.rows.model_copy(update={"share": self.held_out_share}) if self.held_out_share else None

    @property
    def training_set(self) -> TrainingSetSettings:
        """Settings that determine the rows that are trained on."""
        share, given = self.max_unusable_share, self.held_out_path is not None or self.arithmetic is not None
        return TrainingSetSettings(
            source=self.rows,
            held_out_share=0.0 if given else self.held_out_share,
            overlap_words=self.overlap_words,
            max_unusable_share=share if share is not None else SHARE_OF_THE_HUB if self.rows.hub else 0.0,
        )


class RolloutSettings(Settings):
    """Sampling of responses for training.

    Truncating samplers renormalise log-probabilities, so ratios would be silently wrong: they are refused.
    """

    responses_per_prompt: int = Field(ge=1)
    """Size of a group: responses to one prompt, which are compared with each other."""
    max_new_tokens: int = Field(ge=1)
    """Longest response, in tokens."""
    temperature: Number = 1.0
    """Sampling temperature; 1 alone is allowed, see above."""
    top_p: Number = 1.0
    """Nucleus sampling; 1 alone is allowed, which is none."""
    top_k: int = 0
    """Top-k sampling; 0 alone is allowed, which is none."""
    engine: EngineSettings = TransformersSettings()
    max_missing_share: Number = Field(0.0, ge=0, le=1)
    """A shard stops when a larger share of its responses cannot be generated, because a prompt leaves no room in the
    context or the engine gave up; up to that, they are counted and named, and take no part."""
    responses_per_part: int = Field(1024, ge=1)
    """Responses after which what a shard has so far is saved: the most that an interruption loses. Whole groups."""

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
    """Optimization of the policy on a stage's responses."""

    preset: str
    """The algorithm: a named row of objective settings. ``mu-grpo algorithms`` lists them."""
    modifier: Literal["none", "tis", "mis"] = "none"
    """A correction for an engine whose probabilities differ from the trainer's, on top of the preset."""
    objective: ObjectiveSettings = ObjectiveSettings()
    """The preset's row, with the fields given here in place of its own."""
    responses_per_update: int = Field(ge=1)
    """Responses of one update; a multiple of rollout.responses_per_prompt that divides the responses of a stage."""
    learning_rate: Number = Field(1e-6, gt=0)
    """Learning rate of AdamW after the warm-up."""
    warmup_updates: int = Field(0, ge=0)
    """Updates over which the learning rate rises linearly from 0, counted over all stages."""
    weight_decay: Number = Field(0.01, ge=0)
    """Decoupled weight decay of AdamW."""
    adam_beta1: Number = Field(0.9, ge=0, lt=1)
    """Decay of the mean of gradients in AdamW."""
    adam_beta2: Number = Field(0.999, ge=0, lt=1)
    """Decay of the mean of squared gradients in AdamW."""
    max_grad_norm: Number = Field(1.0, gt=0)
    """L2 norm that the gradient of an update is clipped to."""
    tokens_per_micro_batch: int = Field(8192, ge=1)
    """Token budget of one forward and backward pass, with the padding of policies that cannot be packed."""
    logp_chunk_tokens: int = Field(1024, ge=1)
    """Tokens whose logits exist at the same time."""
    backend: BackendSettings = TorchSettings()
    lora: LoraSettings | None = None
    """Train adapters beside the base policy's frozen weights; all weights without it."""
    max_dropped_share: Number = Field(0.01, ge=0, le=1)
    """The stage stops when a larger share of its responses has log-probabilities that are not finite; up to that, they
    are dropped and counted."""
    max_logp_mismatch: Number = Field(0.05, gt=0)
    """The stage stops when the engine's and the trainer's log-probabilities of the same policy differ by more than this
    on average."""

    @model_validator(mode="before")
    @classmethod
    def _fill_from_preset(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        preset, modifier = values.get("preset"), values.get("modifier", "none")
        given = values.get("objective", {})
        if isinstance(given, ObjectiveSettings):
            given = given.model_dump()
        if preset in PRESETS and modifier in MODIFIERS and isinstance(given, dict):
            return {**values, "objective": ObjectiveSettings.merge(resolve(preset, modifier), given)}
        return values

    @field_validator("preset")
    @classmethod
    def _preset_is_known(cls, value: str) -> str:
        if value not in PRESETS:
            raise ValueError(f"unknown preset; allowed: {', '.join(PRESETS)}")
        return value


class TrackerSettings(Kinds):
    """Tracker that shows the numbers of a run while it goes on, besides its report."""

    kind: str = "none"
    """wandb is offline unless the environment has WANDB_API_KEY; TensorBoard's files are in the store."""


class NoTracker(TrackerSettings):
    """No tracker."""

    kind: Literal["none"] = "none"


class TensorBoardTracker(TrackerSettings):
    """TensorBoard."""

    kind: Literal["tensorboard"] = "tensorboard"
    run: str = ""
    """The run's id there. Made from the settings when empty, so that a run that goes on is shown as one."""


class WandbTracker(TrackerSettings):
    """Weights & Biases."""

    kind: Literal["wandb"] = "wandb"
    project: str = "mu-grpo"
    """The project that runs belong to."""
    run: str = ""
    """The run's id there. Made from the settings when empty, so that a run that goes on is shown as one."""


class OperationSettings(Settings):
    """Execution of a run: checkpoints, tracker, mirror of data sets. Nothing here enters a cache key."""

    updates_per_checkpoint: int = Field(32, ge=1)
    """Updates after which the whole state of the optimizer is saved: the most that an interruption loses."""
    checkpoints_kept: int = Field(2, ge=1)
    """Older states of an unfinished step are deleted."""
    tracker: TrackerSettings = NoTracker()
    mirror: StorePlace | None = None
    """A folder or an ``s3://`` prefix that takes the place of the hub for data sets; it has their files at
    ``<mirror>/<data set>/<file>``."""
