"""Preloaded state of forked programs: the heavy modules, and Flyte's types of all records.

Modules that declare tasks or workflows are not loaded here, because they read the environment when they are imported.
flytekit does so too; ``tools/forked.py`` initializes it again in every program.
"""

import gc
import logging
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module

from flytekit.core.type_engine import TypeEngine
from transformers.conversion_mapping import get_checkpoint_conversion_mapping

from tasks.settings.base import FlyteModel

MODULES = [
    "deepspeed",
    "diskcache",
    "flytekit.bin.entrypoint",
    "flytekit.clis.sdk_in_container.pyflyte",
    "flytekitplugins.kfpytorch",
    "mashumaro.jsonschema",
    "matplotlib.figure",
    "matplotlib.style",
    "pyarrow.dataset",
    "pydantic.v1",
    "s3fs",
    "scipy.stats",
    "sympy",
    "tasks.evaluate.step",
    "tasks.flyte.inputs",
    "tasks.models.step",
    "tasks.report.step",
    "tasks.rollout.transformers_engine",
    "tasks.train.colocated",
    "tasks.train.stage",
    "tasks.verify.step",
    "transformers.models.auto.modeling_auto",
    "transformers.models.auto.tokenization_auto",
    "transformers.models.qwen3.modeling_qwen3",
]


def _subclasses(model: type[FlyteModel]) -> Iterator[type[FlyteModel]]:
    for subclass in model.__subclasses__():
        yield subclass
        yield from _subclasses(subclass)


for name in MODULES:
    import_module(name)
logging.disable(logging.WARNING)  # No task takes or returns those models whose fields Flyte warns about.
for model in set(_subclasses(FlyteModel)):
    with suppress(KeyError, IndexError):  # Some base classes have no schema.
        TypeEngine.to_literal_type(model)
logging.disable(logging.NOTSET)
get_checkpoint_conversion_mapping("qwen3")  # The first call makes the mappings of all models.
gc.collect()
gc.freeze()  # Otherwise a garbage collection in every program visits all these objects and copies their pages.
