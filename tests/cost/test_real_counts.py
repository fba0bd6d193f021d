"""What the model counts, beside what real runs made, stored and asked for."""

import pytest

from tasks.cluster.gpus import Pool
from tasks.cluster.rates import EngineRates, Rates
from tasks.cluster.shapes import shape_of
from tasks.cluster.steps import Prediction, predict
from tasks.settings.cost import CostSettings
from tests.cost.conftest import STAGES, Made
from tools.runs import ROOT

COSTS = CostSettings.read(ROOT / "configs/prices.yaml")


def predicted(name: str, made: Made) -> Prediction:
    """With the real mean length of a response and bytes of a token; nothing else of the run is known to it."""
    verdicts = made.history.of_kind("verdicts")
    responses = sum(one.facts["responses"] for one in verdicts)
    tokens = sum(one.facts["responses"] * one.facts["response_tokens"] for one in verdicts)
    engine = EngineRates("transformers", 512, 0.0, 0.0)
    share = tokens / responses / made.run.rollout.max_new_tokens
    each = COSTS.assumptions.model_copy(update={"response_share": share, "prompt_tokens": 0.0})
    rates = Rates(each, frozenset(), engine, engine, trained_token=0.0, scored_token=0.0)
    shape = shape_of(made.run.policy)
    assert shape is not None
    pods = {"rollout": 1, "evaluate": 1, "train": 1}
    pool = Pool(1, pods, 1, dict.fromkeys(pods, "nvidia-h200"), frozenset(), 16, COSTS)
    return predict(made.run, STAGES, shape, rates, pool, alternating=name == "grpo")


@pytest.fixture(params=["mu_grpo", "grpo"])
def pair(request: pytest.FixtureRequest, made: dict[str, Made]) -> tuple[Made, Prediction]:
    return made[request.param], predicted(request.param, made[request.param])


def test_pods_are_artifacts(pair: tuple[Made, Prediction]) -> None:
    made, prediction = pair
    pods = {phase.name: phase.pods for phase in prediction.phases}
    assert pods["evaluate"] == len(made.history.of_kind("evaluation")) == STAGES + 1
    assert pods.get("optimize", 0) + pods.get("alternate", 0) == len(made.history.stages)
    if "generate" in pods:
        assert pods["generate"] == len(made.history.of_kind("rollouts"))
        assert pods["verify"] == len(made.history.of_kind("verdicts"))


def test_tokens_and_updates(pair: tuple[Made, Prediction]) -> None:
    made, prediction = pair
    assert prediction.updates == len(made.history.updates["update"])
    assert prediction.trained_tokens == pytest.approx(sum(made.history.updates["tokens"]))


def test_refreshes(pair: tuple[Made, Prediction]) -> None:
    made, prediction = pair
    switched = any("switch" in stage.policy.timings.phases for stage in made.history.stages)
    assert prediction.refreshes == (sum(made.history.updates["staleness"] == 0) if switched else 0)


def test_bytes_of_policies(pair: tuple[Made, Prediction]) -> None:
    made, prediction = pair
    real = sum(file.bytes for one in made.history.of_kind("policy") for file in one.files.values())
    assert prediction.policy_bytes == pytest.approx(real, rel=0.1)
