"""Use Liger kernels (github.com/linkedin/Liger-Kernel) for the norms and gated linear units of a model."""

import inspect
import sys
from importlib.util import find_spec

from transformers import PreTrainedModel

from tasks.errors import SettingsError
from tasks.models.loading import device


def check_liger() -> None:
    """Check that Liger kernels are installed and that there is a GPU.

    Raises:
        SettingsError: there are not.
    """
    if find_spec("liger_kernel") is None:
        raise SettingsError(
            "optimize.backend.liger: liger-kernel is not installed here. Install it with `pip install 'mu-grpo[gpu]'`, "
            "or set optimize.backend.liger: false."
        )
    if device().type != "cuda":
        raise SettingsError("optimize.backend.liger: there is no GPU here. Set optimize.backend.liger: false.")


def put_liger(model: PreTrainedModel) -> None:
    """Replace the norms and gated linear units of this model, and of no other, by Liger's.

    Rotations stay: Liger replaces them for every model of the process. So do logits, which are never computed whole.

    Raises:
        SettingsError: Liger has no kernels for models of this type.
    """
    from liger_kernel.transformers.monkey_patch import MODEL_TYPE_TO_APPLY_LIGER_FN as KNOWN

    if model.config.model_type not in KNOWN:
        raise SettingsError(
            f"optimize.backend.liger: has no kernels for a {model.config.model_type} model; allowed: "
            f"{', '.join(sorted(KNOWN))}. Set optimize.backend.liger: false."
        )
    put = KNOWN[model.config.model_type]
    wanted = {"rope": False, "cross_entropy": False, "fused_linear_cross_entropy": False}
    # It also replaces the classes in the model's module, of which other models are made.
    module = vars(sys.modules[type(model).__module__])
    before = dict(module)
    put(model=model, **{name: wanted[name] for name in wanted.keys() & inspect.signature(put).parameters.keys()})
    module.update(before)
