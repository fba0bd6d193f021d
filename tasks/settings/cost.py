"""Settings of a plan's cost: accelerators, prices, and assumptions about what has not been measured."""

from pathlib import Path
from typing import Literal, Self

from pydantic import Field

from tasks.errors import SettingsError
from tasks.settings.base import WHOLE_RUN, Number, Settings, read_yaml

Source = Literal["given", "assumed", "measured"]
"""Origin of a number: the settings or the command line, a file of prices, or a run."""


class GpuPriceSettings(Settings):
    """Price of one GPU for one hour."""

    on_demand: Number = Field(ge=0)
    """Price on an on-demand node."""
    spot: Number = Field(ge=0)
    """Price on a spot node."""


class ThroughputSettings(Settings):
    """Shares of the peak rates of a GPU that a run reaches."""

    source: Literal["assumed", "measured"]
    """Origin of these shares: assumed, or measured in a run."""
    training_flops: Number = Field(gt=0, le=1)
    """Share of the peak FLOP/s in updates, in scoring log-probabilities, and in prefill."""
    decoding_flops: Number = Field(gt=0, le=1)
    """Share of the peak FLOP/s for the rows of a decode step."""
    decoding_bandwidth: Number = Field(gt=0, le=1)
    """Share of the memory bandwidth for reading the weights and the KV cache in a decode step."""


class AcceleratorSettings(Settings):
    """A kind of GPU: its price, the figures of its data sheet, and the throughput that a run reaches."""

    price: GpuPriceSettings
    memory_gb: Number = Field(gt=0)
    """Memory of the GPU."""
    bandwidth_gb_per_second: Number = Field(gt=0)
    """Bandwidth of this memory."""
    bfloat16_tflops: Number = Field(gt=0)
    """Peak rate for dense matrices in bfloat16."""
    float32_tflops: Number = Field(gt=0)
    """Peak rate for dense matrices in float32."""
    throughput: ThroughputSettings


class StoragePriceSettings(Settings):
    """Prices of object storage, without requests; a GB is 10^9 bytes."""

    gb_month: Number = Field(ge=0)
    """Price of storing a GB for a month."""
    months: Number = Field(ge=0)
    """Months that the artifacts of a run are kept."""
    egress_gb: Number = Field(ge=0)
    """Price of a GB that pods read from the store: 0 within a region."""


class AssumptionSettings(Settings):
    """Assumed lengths, times and sizes; ``mu-grpo plan --measured`` takes most of them from a finished run instead."""

    response_share: Number = Field(gt=0, le=1)
    """Mean length of a response, as a share of max_new_tokens. The longest response of a
    call is assumed to reach max_new_tokens."""
    prompt_tokens: Number = Field(ge=0)
    """Mean length of a prompt."""
    pod_start_seconds: Number = Field(ge=0)
    """Time from the request for a pod until its step begins (image, Python, imports), in which it holds its GPUs."""
    engine_start_seconds: Number = Field(ge=0)
    """Time that vLLM takes to start with weights from the pod's disk."""
    trainer_start_seconds: Number = Field(ge=0)
    """Time that the trainer takes to start with weights and moments from the pod's disk."""
    switch_seconds: Number = Field(ge=0)
    """Time of a refresh, besides generation, in a task that generates and trains: the engine gets GPU memory and new
    weights, and gives the memory back."""
    update_seconds: Number = Field(ge=0)
    """Time that an update takes, besides its forward and backward passes, to sum gradients and to step AdamW."""
    answer_seconds: Number = Field(ge=0)
    """Time that one worker of the verifier takes for one answer."""
    verifier_start_seconds: Number = Field(ge=0)
    """Time that the verifier takes to start."""
    store_gb_per_second: Number = Field(gt=0)
    """Transfer rate between a pod and the store."""
    hub_gb_per_second: Number = Field(gt=0)
    """Transfer rate from the hub to a pod."""
    bytes_per_token: Number = Field(gt=0)
    """Size of stored rollouts per response token: its id, log-probability and text, compressed."""


class CostSettings(Settings):
    """Prices and assumptions: configs/prices.yaml, or a file of the same form."""

    currency: str = "USD"
    """Currency of all prices."""
    accelerators: dict[str, AcceleratorSettings] = Field(min_length=1)
    """Accelerators by their names in Flyte; the first one is the default."""
    storage: StoragePriceSettings
    assumptions: AssumptionSettings

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read prices and assumptions from a file.

        Raises:
            SettingsError: the file cannot be read, or a value in it is not allowed.
        """
        values = read_yaml(path, cls.model_fields, "configs/prices.yaml", "prices")
        return cls.parse(values, WHOLE_RUN)

    def accelerator(self, name: str) -> AcceleratorSettings:
        """Return the settings of an accelerator.

        Raises:
            SettingsError: no accelerator has this name.
        """
        if name not in self.accelerators:
            raise SettingsError(
                f"accelerator: {name!r} is not in the table of prices; allowed: {', '.join(self.accelerators)}. "
                "Add a row to a copy of configs/prices.yaml, and name it with --prices."
            )
        return self.accelerators[name]
