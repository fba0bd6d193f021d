"""Settings of a plan's cost: accelerators, prices, and assumptions about what nobody has measured yet."""

from pathlib import Path
from typing import Literal, Self

from pydantic import Field

from tasks.errors import SettingsError
from tasks.settings.base import WHOLE_RUN, Number, Settings, read_yaml

Source = Literal["given", "assumed", "measured"]
"""Origin of a number: the settings or the command line, a file of prices, or a run."""


class GpuPriceSettings(Settings):
    """A GPU for an hour."""

    on_demand: Number = Field(ge=0)
    spot: Number = Field(ge=0)


class ThroughputSettings(Settings):
    """Shares of a GPU's peak rates that a run reaches."""

    source: Literal["assumed", "measured"]
    training_flops: Number = Field(gt=0, le=1)
    """Share of the peak in updates, in log-probabilities, and while prompts are read."""
    decoding_flops: Number = Field(gt=0, le=1)
    """Share of the peak, per row of a decode step."""
    decoding_bandwidth: Number = Field(gt=0, le=1)
    """Share of the memory's bandwidth, for the weights and the KV cache of a decode step."""


class AcceleratorSettings(Settings):
    """A kind of GPU: its price, its data sheet, and what a run gets out of it."""

    price: GpuPriceSettings
    memory_gb: Number = Field(gt=0)
    bandwidth_gb_per_second: Number = Field(gt=0)
    bfloat16_tflops: Number = Field(gt=0)
    """Peak of dense matrices."""
    float32_tflops: Number = Field(gt=0)
    throughput: ThroughputSettings


class StoragePriceSettings(Settings):
    """Object storage, in GB of 10^9 bytes."""

    gb_month: Number = Field(ge=0)
    months: Number = Field(ge=0)
    """Months that a run is kept."""
    per_1000_puts: Number = Field(ge=0)
    """Price of 1000 writes or lists."""
    per_1000_gets: Number = Field(ge=0)
    egress_gb: Number = Field(ge=0)
    """Price of a GB that pods read: 0 within a region."""


class AssumptionSettings(Settings):
    """Numbers that a run shows once it ran; ``mu-grpo plan --measured`` takes most of them from one."""

    response_share: Number = Field(gt=0, le=1)
    """Mean length of a response, as a share of max_new_tokens. The longest of a call reaches max_new_tokens."""
    prompt_tokens: Number = Field(ge=0)
    """Mean length of a prompt."""
    pod_start_seconds: Number = Field(ge=0)
    """Time from asking for a pod until its step begins, GPUs held: image, Python, imports."""
    engine_start_seconds: Number = Field(ge=0)
    """Start of vLLM, once the weights are on the pod's disk."""
    trainer_start_seconds: Number = Field(ge=0)
    """Start of the trainer, once weights and moments are on the pod's disk."""
    switch_seconds: Number = Field(ge=0)
    """Time of a refresh in one task: the engine gets new weights and memory, and gives the memory back."""
    update_seconds: Number = Field(ge=0)
    """Time of an update besides its tokens: gradients are summed, AdamW steps."""
    answer_seconds: Number = Field(ge=0)
    """Time of one answer in one worker of the verifier."""
    verifier_start_seconds: Number = Field(ge=0)
    store_gb_per_second: Number = Field(gt=0)
    """Rate between a pod and the store."""
    hub_gb_per_second: Number = Field(gt=0)
    """Rate from the hub to a pod."""
    bytes_per_token: Number = Field(gt=0)
    """Size of stored rollouts per response token: its id, log-probability and text, compressed."""


class CostSettings(Settings):
    """Prices and assumptions: configs/prices.yaml, or a file of the same form."""

    currency: str = "USD"
    accelerators: dict[str, AcceleratorSettings] = Field(min_length=1)
    """Accelerators by the names that Flyte has for them; the first is taken when nothing names another."""
    cpu_pod_hour: Number = Field(ge=0)
    storage: StoragePriceSettings
    assumptions: AssumptionSettings

    @classmethod
    def read(cls, path: Path) -> Self:
        """Return the prices and assumptions of a file.

        Raises:
            SettingsError: it cannot be read, or something in it is not allowed.
        """
        values = read_yaml(path, cls.model_fields, "configs/prices.yaml", "prices")
        return cls.parse(values, WHOLE_RUN)

    def accelerator(self, name: str) -> AcceleratorSettings:
        """Return the row of an accelerator.

        Raises:
            SettingsError: there is none of this name.
        """
        if name not in self.accelerators:
            raise SettingsError(
                f"accelerator: {name!r} is not in the table of prices; allowed: {', '.join(self.accelerators)}. "
                "Add a row to a copy of configs/prices.yaml, and name it with --prices."
            )
        return self.accelerators[name]
