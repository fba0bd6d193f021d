"""What forked programs begin with: the heavy modules, and the schemas of all records, which Flyte asks for.

No module that declares tasks or workflows: these read the environment when imported. flytekit does too, and reads it
again in every program.
"""

import gc
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module

from tasks.settings.base import FlyteModel

MODULES = [
    "deepspeed",
    "flytekit.bin.entrypoint",
    "flytekit.clis.sdk_in_container.pyflyte",
    "flytekitplugins.kfpytorch",
    "matplotlib.figure",
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
    for one in model.__subclasses__():
        yield one
        yield from _subclasses(one)


for name in MODULES:
    import_module(name)
for model in set(_subclasses(FlyteModel)):
    with suppress(KeyError, IndexError):  # a base class without a schema of its own
        model.model_json_schema()
gc.collect()
gc.freeze()  # Otherwise every program walks all of this at a collection, and copies its pages.
