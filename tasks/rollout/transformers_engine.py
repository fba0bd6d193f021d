"""Generation with transformers: in batches with a KV cache, from which complete rows are removed.

Legend of shapes: U distinct prompts, B rows of the batch, L prompt tokens, V vocabulary, N new tokens.
"""

import inspect
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from transformers import DynamicCache, PretrainedConfig, PreTrainedModel

from tasks.errors import DataError
from tasks.models.loading import enough_memory, load_model, longrope_tokens, stop_token_ids
from tasks.rollout.engine import OnDone, Request, Response, Sampling, Work

if TYPE_CHECKING:  # so that a machine with torch and transformers alone can measure this
    from tasks.settings import EngineSettings

_COMPLETE_SHARE = 0.25
"""Share of complete rows at which they are removed from a batch, which copies the KV cache."""
_OWN_STATE = ("minimax", "recurrent_gemma")
"""Models with a state that is not in the cache."""
_FIX = "Lower rollout.engine.batch_size (and evaluate.engine.batch_size where it is set) or max_new_tokens."


@dataclass
class _Rows:
    """Rows of the batch that is being decoded."""

    cache: DynamicCache
    index_B: Tensor  # into the batch's requests
    token_B1: Tensor
    position_B: Tensor
    mask_BL: Tensor | None  # over the cache's columns; None when no prompt is padded
    alive_B: Tensor

    def keep(self, rows: Tensor) -> None:
        self.cache.reorder_cache(rows)
        self.index_B, self.token_B1 = self.index_B[rows], self.token_B1[rows]
        self.position_B, self.alive_B = self.position_B[rows], self.alive_B[rows]
        self.mask_BL = None if self.mask_BL is None else self.mask_BL[rows]


class TransformersEngine:
    """An engine around a causal language model, on the model's device.

    Raises:
        DataError: the model has no cache that the engine can keep.
    """

    def __init__(self, model: PreTrainedModel, stop_ids: Sequence[int], batch_size: int) -> None:
        self.context_tokens = _context_tokens(model.config.get_text_config())
        self._model = model
        # Models without attention have another name for the cache, and take no mask for cached tokens.
        known = inspect.signature(model.forward).parameters.keys()
        self._recurrent = "cache_params" in known
        if not known & {"cache_params", "past_key_values"} or model.config.model_type in _OWN_STATE:
            raise DataError(
                f"policy: a {model.config.model_type} model keeps the state of earlier tokens where the transformers "
                "engine cannot, so its responses would be wrong. Take a policy of another architecture."
            )
        self._stop = torch.tensor(list(stop_ids), device=model.device)
        self._batch_size = batch_size
        self.work = Work()

    @classmethod
    def load(
        cls,
        folder: Path,
        settings: "EngineSettings",
        colocated: bool = False,  # noqa: ARG003 - part of the protocol; here there is nothing to prepare
    ) -> "TransformersEngine":
        """See ``Engine``. The model is on a GPU if there is one."""
        return cls(load_model(folder, dtype=settings.dtype), stop_token_ids(folder), settings.batch_size)

    @torch.no_grad()
    def update_weights(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        """See ``Engine``. Tensors of the model's dtype on its device are shared, not copied.

        Raises:
            ValueError: a weight is missing.
        """
        waiting = dict(self._model.named_parameters())
        for name, weight in weights:
            parameter = waiting.pop(name)
            parameter.data = weight.detach().to(parameter.device, parameter.dtype)
        if waiting:
            raise ValueError(f"no weights for {', '.join(waiting)}")

    @torch.no_grad()
    def rest(self) -> None:
        """See ``Engine``. The weights are dropped."""
        for parameter in self._model.parameters():
            parameter.data = torch.empty(0, device=parameter.device, dtype=parameter.dtype)
        torch.cuda.empty_cache()

    def close(self) -> None:
        """Release the model's memory."""
        del self._model
        torch.cuda.empty_cache()

    def generate(self, requests: Sequence[Request], sampling: Sampling, on_done: OnDone) -> list[Response]:
        """See ``Engine``. Requests are batched by prompt length, so that few prompts are padded."""
        order = sorted(
            range(len(requests)), key=lambda i: (len(requests[i].prompt_token_ids), requests[i].prompt_token_ids)
        )
        responses: dict[int, Response] = {}
        for start in range(0, len(order), self._batch_size):
            indices = order[start : start + self._batch_size]
            batch = [requests[index] for index in indices]
            with enough_memory("generate", _FIX):
                responses.update(zip(indices, self._decode(batch, sampling, on_done), strict=True))
        return [responses[index] for index in range(len(requests))]

    @torch.inference_mode()
    def _decode(self, batch: list[Request], sampling: Sampling, on_done: OnDone) -> Iterator[Response]:
        size, limit = len(batch), sampling.max_new_tokens
        device = self._model.device
        token_BN = torch.zeros(size, limit, dtype=torch.int64, device=device)
        logp_BN = torch.zeros(size, limit, device=device)
        length_B = torch.full((size,), limit, device=device)
        uniform_BN = torch.from_numpy(
            np.stack([np.random.Generator(np.random.Philox(r.seed)).random(limit) for r in batch])
        ).to(device)
        rows, logits_BV = self._prefill(batch)
        computed = 0
        for step in range(limit):
            token_B, picked_B = _choose(logits_BV, sampling.temperature, uniform_BN[rows.index_B, step])
            token_BN[rows.index_B, step], logp_BN[rows.index_B, step] = token_B, picked_B
            stopped_B = torch.isin(token_B, self._stop) & rows.alive_B
            length_B[rows.index_B[stopped_B]] = step + 1
            rows.alive_B = rows.alive_B & ~stopped_B
            rows.token_B1 = token_B[:, None]
            stopped, alive = int(stopped_B.sum()), int(rows.alive_B.sum())
            computed += len(rows.alive_B)
            on_done(stopped, stopped + alive)
            if alive == 0 or step == limit - 1:
                break
            if len(rows.alive_B) - alive >= _COMPLETE_SHARE * len(rows.alive_B):
                rows.keep(rows.alive_B.nonzero().squeeze(1))
            logits_BV = self._step(rows)
        on_done(alive, 0)
        self.work = self.work.plus(step + 1, computed, int(length_B.sum()), size)
        stops_B = torch.isin(token_BN.gather(1, (length_B - 1)[:, None]).squeeze(1), self._stop)
        tokens, logp, stops = token_BN.int().cpu().numpy(), logp_BN.cpu().numpy(), stops_B.tolist()
        for row, length in enumerate(length_B.tolist()):
            yield Response(
                token_ids=tokens[row, :length].copy(),
                logp=logp[row, :length].copy(),
                finish_reason="stop" if stops[row] else "length",
            )

    def _prefill(self, batch: list[Request]) -> tuple[_Rows, Tensor]:
        """Compute each distinct prompt once, and copy its keys and values to the rows that continue it."""
        index_of: dict[tuple[int, ...], int] = {}
        prompt_B = torch.tensor([index_of.setdefault(tuple(r.prompt_token_ids), len(index_of)) for r in batch])
        prompts = list(index_of)
        longest = max(len(prompt) for prompt in prompts)
        token_UL = torch.zeros(len(prompts), longest, dtype=torch.int64)
        mask_UL = torch.zeros(len(prompts), longest, dtype=torch.int64)
        for row, prompt in enumerate(prompts):
            token_UL[row, longest - len(prompt) :] = torch.tensor(prompt)
            mask_UL[row, longest - len(prompt) :] = 1
        padded = bool((mask_UL == 0).any())
        prompt_B, token_UL, mask_UL = (x.to(self._model.device) for x in (prompt_B, token_UL, mask_UL))
        position_UL = (mask_UL.cumsum(1) - 1).clamp(min=0)
        cache = DynamicCache(config=self._model.config.get_text_config(decoder=True))
        logits_UV = self._read(token_UL, mask_UL if padded else None, position_UL, cache)
        cache.reorder_cache(prompt_B)
        rows = _Rows(
            cache=cache,
            index_B=torch.arange(len(batch), device=prompt_B.device),
            token_B1=torch.empty(0),
            position_B=position_UL[prompt_B, -1],
            mask_BL=mask_UL[prompt_B] if padded else None,
            alive_B=torch.ones_like(prompt_B, dtype=torch.bool),
        )
        return rows, logits_UV[prompt_B]

    def _step(self, rows: _Rows) -> Tensor:
        rows.position_B = rows.position_B + 1
        if rows.mask_BL is not None:
            rows.mask_BL = torch.cat([rows.mask_BL, torch.ones_like(rows.mask_BL[:, :1])], dim=1)
        mask_BL = None if self._recurrent else rows.mask_BL
        return self._read(rows.token_B1, mask_BL, rows.position_B[:, None], rows.cache)

    def _read(self, token_BL: Tensor, mask_BM: Tensor | None, position_BL: Tensor, cache: DynamicCache) -> Tensor:
        """Compute tokens after those in the cache (M with both); return the logits of the last one, [B, V]."""
        logits_B1V: Tensor = self._model(
            input_ids=token_BL,
            attention_mask=mask_BM,
            position_ids=position_BL,
            use_cache=True,
            logits_to_keep=1,
            **{"cache_params" if self._recurrent else "past_key_values": cache},
        ).logits
        return logits_B1V[:, -1]


def _context_tokens(config: PretrainedConfig) -> int:
    """Return the longest sequence of a model, in tokens; unlimited where its configuration names none."""
    names = ("max_position_embeddings", "max_seq_len", "context_length")
    longest = next((int(known) for name in names if (known := getattr(config, name, None))), sys.maxsize)
    return longrope_tokens(config) or longest


def _choose(logits_BV: Tensor, temperature: float, uniform_B: Tensor) -> tuple[Tensor, Tensor]:
    """Return tokens and their fp32 log-probabilities, by inverse transform of a uniform number for each row."""
    logp_BV = torch.log_softmax(logits_BV.float() / (temperature or 1.0), dim=1)
    if temperature == 0:
        token_B = logp_BV.argmax(1)
    else:
        cumulative_BV = logp_BV.double().exp().cumsum(1)
        threshold_B1 = (uniform_B * cumulative_BV[:, -1])[:, None]
        token_B = torch.searchsorted(cumulative_BV, threshold_B1, right=True)[:, 0].clamp(max=logits_BV.shape[1] - 1)
    return token_B, logp_BV.gather(1, token_B[:, None]).squeeze(1)
