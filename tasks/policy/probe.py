"""Whether packing changes what a model says."""

import numpy as np
import torch
from torch import Tensor

from tasks.errors import DataError
from tasks.policy.packing import PACKED_ATTENTION
from tasks.policy.scorer import Scorer, pack

_PROMPT_TOKENS, _RESPONSE_TOKENS = (5, 3), (6, 7)
_LARGEST_DIFFERENCE = 5e-3
"""nats; two ways to the same fp32 numbers differ by less, state that reaches a neighbour by more."""


@torch.no_grad()
def check_packing(scorer: Scorer) -> None:
    """Compares the log-probabilities of two packed responses with those that each has alone, under eager attention.

    Models whose layers carry state from token to token, place tokens by other means than position_ids or change their
    logits get other ones.

    Args:
        scorer: of a model with fp32 weights and packed attention, which it keeps.

    Raises:
        DataError: the model cannot be packed.
    """
    model = scorer.model
    known = min(model.get_input_embeddings().num_embeddings, 997)
    prompts, responses = (
        [(np.arange(count) * 7 + 3 + 11 * place) % known for place, count in enumerate(counts)]
        for counts in (_PROMPT_TOKENS, _RESPONSE_TOKENS)
    )
    try:
        packed_T = scorer(pack(prompts, responses))[0]
        model.set_attn_implementation("eager")
        alone_T = torch.cat([_alone(scorer, *pair) for pair in zip(prompts, responses, strict=True)])
    except (DataError, torch.OutOfMemoryError):
        raise
    except (AttributeError, IndexError, NotImplementedError, RuntimeError, TypeError, ValueError) as error:
        raise DataError(f"{_cannot(scorer)}: {type(error).__name__}: {error}. {_MEND}") from error
    finally:
        model.set_attn_implementation(PACKED_ATTENTION)
    difference = float((packed_T - alone_T).abs().max())
    if not difference <= _LARGEST_DIFFERENCE:
        raise DataError(
            f"{_cannot(scorer)}: log-probabilities of packed responses differ by {difference:.3g} from those that each "
            f"has alone, {_LARGEST_DIFFERENCE:g} at most is allowed. {_MEND}"
        )


def _alone(scorer: Scorer, prompt: np.ndarray, response: np.ndarray) -> Tensor:
    token_1P = torch.from_numpy(np.concatenate([prompt, response]))[None].to(scorer.model.device)
    logp_PV = scorer.model(input_ids=token_1P, use_cache=False).logits[0].float().log_softmax(-1)
    return logp_PV[len(prompt) - 1 : -1].gather(1, token_1P[0, len(prompt) :, None])[:, 0]


_MEND = "Choose a policy of plain causal attention, such as Qwen or Llama."


def _cannot(scorer: Scorer) -> str:
    return f"policy: a {scorer.model.config.model_type} model cannot be trained on packed responses"
