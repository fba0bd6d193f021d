"""Declarations of the tasks: their types as Flyte knows them, and what of their inputs names the work."""

from flytekit import PythonFunctionTask
from flytekit.types.pickle.pickle import FlytePickleTransformer

from tasks.flyte import experiments, tasks
from tasks.flyte.inputs import OptimizeInputs
from tasks.settings import OperationSettings
from tasks.store import StoreRef
from tests.prepared import OPTIMIZE
from tools.cache_versions import declared


def test_no_input_or_output_is_declared_as_a_pickle() -> None:
    members = [*vars(tasks).values(), *vars(experiments).values()]
    found = [one for one in members if isinstance(one, PythonFunctionTask)]
    assert len(found) > len(declared())
    pickle = FlytePickleTransformer.PYTHON_PICKLE_FORMAT
    assert not [one.name for one in found if pickle in str(one.interface.to_flyte_idl())]


def test_the_key_of_inputs_holds_settings_and_the_id_of_the_store() -> None:
    given = OptimizeInputs(store=StoreRef(uri="runs", id="a"), seed=0, settings=OPTIMIZE, operation=OperationSettings())
    moved = {"store": StoreRef(uri="elsewhere", id="a"), "operation": OperationSettings(updates_per_checkpoint=2)}
    assert given.model_copy(update=moved).key() == given.key()
    faster = OPTIMIZE.model_copy(update={"learning_rate": 2e-3})
    others = [{"seed": 1}, {"settings": faster}, {"store": StoreRef(uri="runs", id="b")}]
    assert given.key() not in [given.model_copy(update=other).key() for other in others]
