"""Declarations of the cached tasks: what they give their logic, and what of it names the work."""

import inspect
from typing import Any, get_type_hints

import pytest
from flytekit import PythonFunctionTask
from flytekit.core.type_engine import TypeEngine
from flytekit.types.pickle.pickle import FlytePickleTransformer

from tasks.flyte import experiments, tasks
from tasks.flyte.decorators import arguments
from tasks.flyte.inputs import OptimizeInputs, StepInputs
from tasks.settings import OperationSettings
from tasks.store import StoreRef
from tests.prepared import OPTIMIZE
from tools.cache_versions import declared


@pytest.mark.parametrize("name", sorted(declared()))
def test_the_function_of_a_task_takes_its_inputs(name: str) -> None:
    task = getattr(tasks, name, None) or getattr(experiments, name)
    assert isinstance(task, PythonFunctionTask)
    declaration = inspect.unwrap(task.task_function)
    kinds = get_type_hints(declaration)
    del kinds["return"]
    given = {one: filled(one, kind) for one, kind in kinds.items()}
    logic = declaration(**given)
    store, determining, rest = arguments(logic, given)
    inspect.signature(logic).bind(store, *determining, **rest)
    assert rest.keys() <= {"operation", "prompts"}
    assert "operation" not in determining


def test_no_input_or_output_is_declared_as_a_pickle() -> None:
    members = [*vars(tasks).values(), *vars(experiments).values()]
    found = [one for one in members if isinstance(one, PythonFunctionTask)]
    assert len(found) > len(declared())
    pickle = FlytePickleTransformer.PYTHON_PICKLE_FORMAT
    assert not [one.name for one in found if pickle in str(one.interface.to_flyte_idl())]


def test_the_type_of_an_optional_input_is_marked() -> None:
    optional, _ = TypeEngine.to_literal_type(OperationSettings | None).union_type.variants
    assert optional.to_flyte_idl().structure.tag == "Pydantic Transformer"


def filled(name: str, kind: Any) -> object:
    """The name of an input in place of its value; for a record, one with its fields' names as values."""
    if isinstance(kind, type) and issubclass(kind, StepInputs):
        return kind.model_construct(**{field: field for field in kind.model_fields})
    return name


def test_the_key_of_inputs_holds_settings_and_the_id_of_the_store() -> None:
    given = OptimizeInputs(store=StoreRef(uri="runs", id="a"), seed=0, settings=OPTIMIZE, operation=OperationSettings())
    moved = {"store": StoreRef(uri="elsewhere", id="a"), "operation": OperationSettings(updates_per_checkpoint=2)}
    assert given.model_copy(update=moved).key() == given.key()
    faster = OPTIMIZE.model_copy(update={"learning_rate": 2e-3})
    others = [{"seed": 1}, {"settings": faster}, {"store": StoreRef(uri="runs", id="b")}]
    assert given.key() not in [given.model_copy(update=other).key() for other in others]
