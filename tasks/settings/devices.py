"""Settings of engines, which generate, and of backends, which train: number types, devices, memory."""

import json
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from tasks.formats import shorten
from tasks.settings.base import Kinds, Number, Settings

Dtype = Literal["float32", "bfloat16"]


class EngineSettings(Kinds):
    """The engine that generates.

    A new engine is a subclass, whose class variables tell a plan how it uses devices.
    """

    path: ClassVar[str]
    """``module:class`` of a class that implements ``tasks.rollout.engine.Engine``; imported on first use."""
    refills: ClassVar[bool] = True
    """The engine starts a waiting response when another one is complete; otherwise a batch lasts as long as its longest
    response."""
    own_weights: ClassVar[bool] = True
    """The engine keeps its own weights, also in a task that generates and trains, where they take a reserved share of a
    GPU's memory. When false, it uses the trainer's tensors there."""
    several_devices: ClassVar[bool] = True
    """The engine allows ``tensor_parallel`` above 1."""
    kind: str = "transformers"
    """Library that generates, or an engine of your own."""
    dtype: Dtype = "float32"
    """Number type of weights and KV cache. Log-probabilities are always float32."""
    batch_size: int = Field(512, ge=1)
    """Largest number of responses that are decoded at the same time."""
    tensor_parallel: int = Field(1, ge=1)
    """Number of GPUs that share the weights; 1 with transformers."""

    @property
    def memory_share(self) -> float:
        """Return the share of a GPU's memory for weights and KV cache."""
        return 0.9

    @model_validator(mode="after")
    def _devices(self) -> Self:
        if self.tensor_parallel > 1 and not self.several_devices:
            parallel = " or ".join(name for name, kind in EngineSettings.kinds().items() if kind.several_devices)
            raise ValueError(
                f"tensor_parallel {self.tensor_parallel} with kind {self.kind}; allowed: 1, or kind {parallel}"
            )
        return self


class TransformersSettings(EngineSettings):
    """transformers, in the process of the task."""

    path = "tasks.rollout.transformers_engine:TransformersEngine"
    refills = own_weights = several_devices = False
    kind: Literal["transformers"] = "transformers"


class VllmSettings(EngineSettings):
    """vLLM; on a GPU in processes of its own, unless the same task trains."""

    path = "tasks.rollout.vllm_engine:VllmEngine"
    kind: Literal["vllm"] = "vllm"
    gpu_memory_share: Number = Field(0.9, gt=0, le=1)
    """Share of a GPU's memory for weights and KV cache. In a task that generates and trains, the trainer's weights and
    moments need the rest."""
    batch_tokens: int | None = Field(None, ge=1)
    """Largest number of tokens in a forward pass; vLLM's default when null."""
    max_model_len: int | None = Field(None, ge=1)
    """Largest number of tokens of a prompt and its response together; that of the model when null. vLLM does not start
    unless the KV cache has room for so many. A prompt that leaves no room for ``max_new_tokens`` is refused by name, or
    counts as missing (``rollout.max_missing_share``)."""
    prefix_caching: bool = True
    """Compute the keys and values of a prompt once for all of its responses."""
    chunked_prefill: bool = True
    """Split the prefill of long prompts into chunks that share forward passes with the decoding of other responses. On
    a CPU prompts are never split."""
    eager: bool = False
    """Use neither compilation nor CUDA graphs: vLLM starts faster and generates slower."""

    @property
    def memory_share(self) -> float:
        """Return the share of a GPU's memory for weights and KV cache."""
        return self.gpu_memory_share


_DECIDED_BY_TRAINER = (
    "optimizer",
    "scheduler",
    "bf16",
    "fp16",
    "data_types",
    "gradient_clipping",
    "gradient_accumulation_steps",
    "gradient_allreduce_op",
    "train_batch_size",
    "train_micro_batch_size_per_gpu",
    "activation_checkpointing",
    "managed_gradient_accumulation",
    "torch_autocast",
)
"""Keys of DeepSpeed's configuration that the trainer decides; without an error they would be silently ignored, or
change the dtype or the scale of gradients."""


class BackendSettings(Kinds):
    """The backend that holds the weights during training, in one or several processes."""

    kind: str = "torch"
    """Library that trains."""
    dtype: Dtype = "float32"
    """Number type of the forward and backward pass. The weights that AdamW updates, and its moments, are always
    float32."""
    processes: int = Field(1, ge=1)
    """Number of processes on a node, one per GPU; 1 with torch."""
    gradient_checkpointing: bool = False
    """Keep only the input of every layer, and compute the layer again in the backward pass."""
    liger: bool = False
    """Use Liger's kernels for norms and gated linear units, which save memory and time; only on GPUs."""

    @property
    def deepspeed_config(self) -> dict[str, Any]:
        """Return DeepSpeed's configuration; empty for torch."""
        return {}

    @property
    def zero_stage(self) -> int:
        """Return the stage of DeepSpeed's ZeRO; 0 for torch."""
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
    """DeepSpeed's configuration as JSON, or the path of a JSON file such as configs/deepspeed/zero2.json. The ZeRO
    stage decides what is split over the processes: AdamW's moments (1), also gradients (2), also weights (3)."""

    @field_validator("deepspeed", mode="before")
    @classmethod
    def _read(cls, value: Any) -> Any:
        """Return the configuration as JSON with sorted keys, so that no path is part of a cache key."""
        try:
            if isinstance(value, str) and value:
                text = value if value.lstrip().startswith("{") else Path(value).read_text(encoding="utf-8")
                value = json.loads(text)
                if not isinstance(value, dict):
                    raise ValueError(f"{shorten(text)!r} is no JSON object")
            return json.dumps(value, sort_keys=True) if isinstance(value, dict) else value
        except (OSError, ValueError) as error:
            raise ValueError(
                f"cannot be read: {error}; allowed: DeepSpeed's JSON or the path of a file with it"
            ) from None

    @property
    def deepspeed_config(self) -> dict[str, Any]:
        """Return the content of ``deepspeed``."""
        content: dict[str, Any] = json.loads(self.deepspeed or "{}")
        return content

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        zero = self.deepspeed_config.get("zero_optimization", {})
        whole = isinstance(zero, dict) and isinstance(zero.get("offload_optimizer") or {}, dict)
        if not whole or zero.get("stage") not in (1, 2, 3):
            raise ValueError(
                f"deepspeed.zero_optimization: {zero!r}; allowed: a section with stage 1, 2 or 3, and with "
                "offload_optimizer as a section, as in configs/deepspeed/zero3-offload.json"
            )
        if zero.get("round_robin_gradients"):
            # DeepSpeed finds a parameter's fp32 weights and moments by its place in another order of the parameters.
            raise ValueError("deepspeed.zero_optimization.round_robin_gradients: true; allowed: false")
        if self.zero_stage == 1 and self.dtype == "bfloat16":
            raise ValueError("ZeRO stage 1 with dtype bfloat16; allowed: 2 or 3, whose gradients are summed in float32")
        for key in _DECIDED_BY_TRAINER:
            if key in self.deepspeed_config:
                raise ValueError(f"deepspeed.{key}: is decided by the other settings of optimize. Remove it.")
        return self


class LoraSettings(Settings):
    """Low-rank adapters (LoRA): only they are trained. A policy has them, and the weights with adapters merged in."""

    rank: int = Field(32, ge=1)
    """Rank of the product of an adapter's two matrices."""
    alpha: Number = Field(64.0, gt=0)
    """Numerator of the scale of adapters, alpha / rank."""
