"""Engines, which generate, and backends, which train: their number types and their share of the devices."""

import json
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from tasks.settings.base import Kinds, Number, Settings

Dtype = Literal["float32", "bfloat16"]


class EngineSettings(Kinds):
    """The engine that generates. A new engine is a subclass, whose class variables say what a plan must know of it."""

    path: ClassVar[str]
    """``module:class`` of a class that follows ``tasks.rollout.engine.Engine``. It is imported when it is needed."""
    refills: ClassVar[bool] = True
    """A waiting response takes the place of a complete one; otherwise a batch ends with its longest one."""
    own_weights: ClassVar[bool] = True
    """The engine keeps weights beside those of a trainer with which it takes turns, in a reserved share of a GPU's
    memory; otherwise it uses the trainer's tensors."""
    several_devices: ClassVar[bool] = True
    """``tensor_parallel`` may be above 1."""
    kind: str = "transformers"
    """transformers in this process, vLLM, or an engine of your own."""
    dtype: Dtype = "float32"
    """Number type of weights and KV cache. Log-probabilities are float32."""
    batch_size: int = Field(512, ge=1)
    """Most responses that are decoded at once."""
    tensor_parallel: int = Field(1, ge=1)
    """GPUs that share the weights; 1 with transformers."""

    @property
    def memory_share(self) -> float:
        """Share of a GPU's memory for weights and KV cache."""
        return 0.9

    @classmethod
    def load_class(cls) -> Any:
        """Return the class of the engine."""
        module, _, name = cls.path.partition(":")
        return getattr(import_module(module), name)

    @model_validator(mode="after")
    def _devices(self) -> Self:
        if self.tensor_parallel > 1 and not self.several_devices:
            several = " or ".join(name for name, one in EngineSettings.kinds().items() if one.several_devices)
            raise ValueError(
                f"tensor_parallel {self.tensor_parallel} with kind {self.kind}; allowed: 1, or kind {several}"
            )
        return self


class TransformersSettings(EngineSettings):
    """transformers, in the process that asks for responses."""

    path = "tasks.rollout.transformers_engine:TransformersEngine"
    refills = own_weights = several_devices = False
    kind: Literal["transformers"] = "transformers"


class VllmSettings(EngineSettings):
    """vLLM, in processes of its own."""

    path = "tasks.rollout.vllm_engine:VllmEngine"
    kind: Literal["vllm"] = "vllm"
    gpu_memory_share: Number = Field(0.9, gt=0, le=1)
    """Share of a GPU's memory for weights and KV cache. Where vLLM takes turns with training, weights and moments of
    that stay beside it."""
    batch_tokens: int | None = Field(None, ge=1)
    """Most tokens of a forward pass; vLLM's own default without it."""
    prefix_caching: bool = True
    """A prompt's keys and values are computed once for all of its responses."""
    chunked_prefill: bool = True
    """Long prompts are read in portions, beside the decoding of others."""
    eager: bool = False
    """Neither compilation nor CUDA graphs; starts faster, generates slower."""

    @property
    def memory_share(self) -> float:
        """See ``EngineSettings``."""
        return self.gpu_memory_share


_OURS = (
    "optimizer",
    "scheduler",
    "bf16",
    "fp16",
    "data_types",
    "gradient_clipping",
    "gradient_accumulation_steps",
    "train_batch_size",
)
"""Keys of DeepSpeed for what the trainer decides; they would be silently passed over."""


class BackendSettings(Kinds):
    """The backend, which holds the weights while they are trained, in one or several processes."""

    kind: str = "torch"
    """torch in one process, or DeepSpeed in several."""
    dtype: Dtype = "float32"
    """Number type of the forward and backward pass. Weights that are updated, and AdamW's moments, are float32 in any
    case."""
    processes: int = Field(1, ge=1)
    """Processes on a node, one per GPU; 1 with torch."""
    gradient_checkpointing: bool = False
    """Keeps a layer's input alone and computes the layer again in the backward pass."""
    liger: bool = False
    """Liger's kernels for norms and gated linear units: less memory and time, on GPUs alone."""

    @property
    def deepspeed_config(self) -> dict[str, Any]:
        """DeepSpeed's configuration; empty for torch."""
        return {}

    @property
    def zero_stage(self) -> int:
        """Stage of DeepSpeed's ZeRO; 0 for torch."""
        return int(self.deepspeed_config.get("zero_optimization", {}).get("stage", 0))


class TorchSettings(BackendSettings):
    """Plain torch, in one process."""

    kind: Literal["torch"] = "torch"

    @model_validator(mode="after")
    def _one_process(self) -> Self:
        if self.processes > 1:
            raise ValueError(f"processes {self.processes} with kind torch; allowed: 1, or kind deepspeed")
        return self


class DeepSpeedSettings(BackendSettings):
    """DeepSpeed ZeRO, in one or several processes."""

    kind: Literal["deepspeed"] = "deepspeed"
    deepspeed: str = ""
    """DeepSpeed's JSON, or the path of a file with it: configs/deepspeed/zero2.json and its neighbours. The ZeRO stage
    says what processes share: AdamW's moments (1), gradients too (2), and weights too (3)."""

    @field_validator("deepspeed", mode="before")
    @classmethod
    def _read(cls, value: Any) -> Any:
        """Its content in one form, so that the place of a file enters no key."""
        try:
            if isinstance(value, str) and value and not value.lstrip().startswith("{"):
                value = Path(value).read_text()
            found = json.loads(value) if isinstance(value, str) and value else value
            return json.dumps(found, sort_keys=True) if isinstance(found, dict) else value
        except (OSError, ValueError) as error:
            raise ValueError(
                f"cannot be read: {error}; allowed: DeepSpeed's JSON or the path of a file with it"
            ) from None

    @property
    def deepspeed_config(self) -> dict[str, Any]:
        """The content of ``deepspeed``."""
        found: dict[str, Any] = json.loads(self.deepspeed or "{}")
        return found

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.zero_stage not in (1, 2, 3):
            raise ValueError(
                f"deepspeed.zero_optimization.stage: {self.zero_stage}; allowed: 1, 2 or 3, as in "
                "configs/deepspeed/zero2.json"
            )
        if self.zero_stage == 1 and self.dtype == "bfloat16":
            raise ValueError("ZeRO stage 1 with dtype bfloat16; allowed: 2 or 3, whose gradients are summed in float32")
        for key in _OURS:
            if key in self.deepspeed_config:
                raise ValueError(f"deepspeed.{key}: is decided by the other settings of optimize. Remove it.")
        return self


class LoraSettings(Settings):
    """Adapters in place of all weights: what is trained and stored is a fraction of the policy."""

    rank: int = Field(32, ge=1)
    """Rank of the two matrices of an adapter."""
    alpha: Number = Field(64.0, gt=0)
    """Adapters are scaled by alpha / rank."""
