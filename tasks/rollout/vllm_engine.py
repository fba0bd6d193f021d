"""Generation with vLLM: token ids in and out, a seed for each request, log-probabilities of the sampled tokens.

A colocated engine runs in the training process, so that it can take that process's tensors.
With several processes vLLM's executor ``external_launcher`` gives each an engine on one GPU. A rest is vLLM's sleep at
level 2 (``enable_sleep_mode``), which releases weights and KV cache; on a CPU an engine does not sleep.
"""

import gc
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn
from transformers import AutoConfig

from tasks.errors import DeviceError, SettingsError, check_extra
from tasks.models.loading import has_code, longrope_tokens, stop_token_ids, weight_names
from tasks.rollout.engine import MISSING, OnDone, Request, Response, Sampling, Work, ignore_progress
from tasks.settings.devices import VllmSettings

if TYPE_CHECKING:
    from vllm import LLM, RequestOutput, SamplingParams

_SEEDS = 2**63
"""Number of seeds that vLLM takes, which are signed 64-bit integers."""


class VllmEngine:
    """An engine around ``vllm.LLM``; see ``Engine.load``."""

    def __init__(self, folder: Path, settings: VllmSettings, colocated: bool = False) -> None:
        self._joined = dist.is_initialized()
        self._llm = _load(folder, settings, colocated)
        self._stop_ids = stop_token_ids(folder)
        self._names = weight_names(folder)
        self._sleeps = colocated and torch.cuda.is_available()
        self._asleep = False
        self.context_tokens = int(self._llm.model_config.max_model_len)
        self.work = Work()
        self._passes = 0
        self._on_done: OnDone = ignore_progress
        self._places = settings.batch_size
        step = self._llm.llm_engine.step

        def counted() -> Any:
            self._passes += 1
            outputs = step()
            self._on_done(sum(output.finished for output in outputs), 0)
            return outputs

        self._llm.llm_engine.step = counted  # vLLM has no public count of its steps.
        _report_end(self._llm.llm_engine.engine_core)

    @classmethod
    def load(cls, folder: Path, settings: VllmSettings, colocated: bool = False) -> "VllmEngine":
        """See ``Engine``."""
        return cls(folder, settings, colocated)

    def generate(self, requests: Sequence[Request], sampling: Sampling, on_done: OnDone) -> list[Response]:
        """See ``Engine``. The longest prompts come first, so that no long request runs alone at the end.

        Raises:
            DeviceError: vLLM's process ended.
        """
        from vllm.v1.engine.exceptions import EngineDeadError

        if not requests:
            return []
        order = sorted(range(len(requests)), key=lambda i: -len(requests[i].prompt_token_ids))
        before, self._on_done = self._passes, on_done
        try:
            outputs = self._llm.generate(
                [{"prompt_token_ids": requests[index].prompt_token_ids} for index in order],
                [self._parameters(requests[index], sampling) for index in order],
                use_tqdm=False,
            )
        except EngineDeadError as error:
            raise DeviceError(
                "vLLM's process ended while it generated. Its error is above; without one it was killed, as for lack "
                "of memory. Start the same command again: it continues after the last saved part."
            ) from error
        responses = {index: _response(output) for index, output in zip(order, outputs, strict=True)}
        tokens = sum(len(response.token_ids) for response in responses.values())
        # Complete rows leave the batch at once, so every row of a pass gives a token.
        self.work = self.work.plus(self._passes - before, tokens, tokens, min(self._places, len(requests)))
        on_done(0, tokens)
        return [responses[index] for index in range(len(requests))]

    def update_weights(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        """See ``Engine``. Only a colocated engine can.

        vLLM's ``reload_weights`` takes weights by their names in a folder, prepares them for its kernels as at start,
        and writes them to the same addresses, which CUDA graphs refer to.

        Raises:
            SettingsError: a weight's name in the model differs from that in the folder, by which vLLM knows it.
        """
        if self._asleep:
            torch.cuda.empty_cache()  # of training
            self._llm.wake_up(tags=["weights"])
        self._llm.collective_rpc("reload_weights", kwargs={"weights_iterator": self._known_weights(weights)})
        if not torch.cuda.is_available():
            self._llm.apply_model(_repack_embeddings)
        if self._asleep:
            self._llm.wake_up(tags=["kv_cache"])
            self._asleep = False
        self._llm.reset_prefix_cache()

    def _known_weights(self, weights: Iterable[tuple[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
        for name, weight in weights:
            if name not in self._names:
                raise SettingsError(
                    f"rollout.engine.kind: vllm cannot be given {name} of this policy, which has another name in the "
                    "policy's folder; allowed: transformers, or a workflow in which generation is a step of its own"
                )
            yield name, weight

    def rest(self) -> None:
        """See ``Engine``."""
        if self._sleeps and not self._asleep:
            self._llm.sleep(level=2)
            self._asleep = True

    def close(self) -> None:
        """End vLLM's processes, which releases the GPU's memory."""
        from vllm.distributed.parallel_state import cleanup_dist_env_and_memory, destroy_model_parallel

        if self._asleep:
            # vLLM's allocator would unmap sleeping memory again, and fail for every later engine.
            torch.cuda.empty_cache()
            with suppress(RuntimeError):  # Out of memory: the error that ended the stage is the one to report.
                self._llm.wake_up()
        client = self._llm.llm_engine.engine_core
        del self._llm
        if not self._joined:
            client.shutdown()
            cleanup_dist_env_and_memory()
            return
        # vLLM's own shutdown would also end the process group of the training.
        client._finalizer.detach()
        client.engine_core.model_executor.shutdown()
        destroy_model_parallel()
        del client
        gc.unfreeze()
        gc.collect()

    def _parameters(self, request: Request, sampling: Sampling) -> "SamplingParams":
        from vllm import SamplingParams

        return SamplingParams(
            max_tokens=sampling.max_new_tokens,
            temperature=sampling.temperature,
            seed=request.seed % _SEEDS,
            stop_token_ids=self._stop_ids,
            ignore_eos=True,  # stop_token_ids has it
            logprobs=0,
            flat_logprobs=True,
            detokenize=False,
        )


def _load(folder: Path, settings: VllmSettings, colocated: bool) -> "LLM":
    check_extra("vllm", "engine.kind", ", or set rollout.engine.kind: transformers")
    on_gpu = torch.cuda.is_available()
    if settings.tensor_parallel > max(1, torch.cuda.device_count()):
        raise SettingsError(
            f"engine.tensor_parallel: {settings.tensor_parallel} GPUs, but this machine has "
            f"{torch.cuda.device_count()}. Lower rollout.engine.tensor_parallel."
        )
    if colocated:
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    elif not on_gpu:
        os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")  # starts five times as fast
    # A forked process cannot use CUDA if its parent has initialised it.
    os.environ.setdefault("VLLM_WORKER_MULTIPROC_METHOD", "spawn")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    from vllm import LLM

    config = AutoConfig.from_pretrained(folder, trust_remote_code=has_code(folder)).get_text_config()
    lengths = filter(None, (settings.max_model_len, longrope_tokens(config)))
    sizes = {"max_num_batched_tokens": settings.batch_tokens, "max_model_len": min(lengths, default=None)}
    options: dict[str, Any] = {name: size for name, size in sizes.items() if size is not None}
    if on_gpu:
        options["gpu_memory_utilization"] = settings.gpu_memory_share
        options["enable_sleep_mode"] = colocated
    if colocated and dist.is_initialized():
        options["distributed_executor_backend"] = "external_launcher"
    threads = torch.get_num_threads()
    try:
        return LLM(
            model=str(folder),
            skip_tokenizer_init=True,
            trust_remote_code=has_code(folder),
            dtype=settings.dtype,
            seed=0,  # each request has a seed of its own
            tensor_parallel_size=settings.tensor_parallel,
            max_num_seqs=settings.batch_size,
            enable_prefix_caching=settings.prefix_caching,
            # After a part of a prompt vLLM rewinds the request's generator, which it cannot on a CPU.
            enable_chunked_prefill=settings.chunked_prefill and on_gpu,
            enforce_eager=settings.eager,
            logprobs_mode="processed_logprobs",
            **options,
        )
    except (ValueError, RuntimeError) as error:
        # Whatever ends vLLM's process is a RuntimeError here, also a broken GPU, which another attempt does not get.
        kind = SettingsError if isinstance(error, ValueError) else DeviceError
        asked = settings.model_dump(exclude={"kind"})
        raise kind(f"engine.kind: vllm cannot load {folder} with rollout.engine {asked}: {error}") from error
    finally:
        if colocated:
            torch.set_num_threads(threads)  # vLLM sets it to 1, and an offloaded optimizer needs all threads.


def _report_end(client: Any) -> None:
    """Make a call that waits for vLLM's process end with an error when that process is killed.

    vLLM notices this in a thread that shuts the client down, but the call would wait for outputs forever.
    """
    from vllm.v1.engine.exceptions import EngineDeadError

    if (outputs := getattr(client, "outputs_queue", None)) is None:
        return  # The engine is in this process.
    shutdown = client.shutdown

    def shutdown_and_report(*args: Any, **kwargs: Any) -> None:
        shutdown(*args, **kwargs)
        outputs.put(EngineDeadError())

    client.shutdown = shutdown_and_report


def _repack_embeddings(model: nn.Module) -> None:
    """Renew the copies of embeddings for CPU kernels, since reloading skips an embedding that shares its weights."""
    layers: Iterable[Any] = model.modules()
    for layer in layers:
        if hasattr(layer, "cpu_linear") and layer.weight.numel():
            layer.quant_method.process_weights_after_loading(layer)


def _response(output: "RequestOutput") -> Response:
    made = output.outputs[0]
    if made.finish_reason not in ("stop", "length"):
        return MISSING
    return Response(
        token_ids=np.asarray(made.token_ids, dtype=np.int32),
        logp=np.asarray(made.logprobs.logprobs, dtype=np.float32),
        finish_reason=made.finish_reason,
    )
