"""What the model counts, beside what real runs made, stored and asked for."""

import pytest

from tasks.cost.estimate import Estimator, Prediction
from tasks.cost.jobs import Layout
from tasks.cost.rates import EngineRates, Lengths, Rates
from tasks.cost.shapes import shape_of
from tasks.settings.deployment import Role
from tests.cost.conftest import STAGES, Made

ROLES: tuple[Role, ...] = ("rollout", "evaluate", "train")


def predicted(name: str, made: Made) -> Prediction:
    """With the real mean length of a response and bytes of a token; nothing else of the run is known to it."""
    verdicts = made.history.of_kind("verdicts")
    responses = sum(one.facts["responses"] for one in verdicts)
    tokens = sum(one.facts["responses"] * one.facts["response_tokens"] for one in verdicts)
    engine = EngineRates("transformers", 512, 0.0, 0.0)
    nothing = dict.fromkeys(
        ("update", "trained_token", "scored_token", "answer", "verifier", "switch", "engine", "trainer", "base"), 0.0
    )
    lengths = Lengths(((0, tokens / responses),))
    rates = Rates(rollout=engine, evaluate=engine, lengths=lengths, prompt_tokens=0.0, **nothing)
    shape = shape_of(made.run.policy)
    assert shape is not None
    estimator = Estimator(made.run, STAGES, shape, Layout(1, dict.fromkeys(ROLES, 1)))
    return estimator.alternating(rates) if name == "grpo" else estimator.staged(rates)


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


def test_responses_tokens_and_updates(pair: tuple[Made, Prediction]) -> None:
    made, prediction = pair
    verdicts = made.history.of_kind("verdicts")
    counts = prediction.counts
    assert counts.responses == sum(one.facts["responses"] for one in verdicts)
    assert counts.updates == len(made.history.updates["update"])
    answers = [sum(policy.outcomes.values()) for policy in made.history.evaluated]
    assert counts.evaluated_responses == sum(answers)
    assert counts.answers == counts.responses + sum(answers)
    assert counts.trained_tokens == pytest.approx(sum(made.history.updates["tokens"]))


def test_loads_and_refreshes(pair: tuple[Made, Prediction]) -> None:
    made, prediction = pair
    trained = [stage.policy for stage in made.history.stages]
    loading = made.history.of_kind("evaluation") + made.history.of_kind("rollouts")
    assert prediction.counts.engine_starts == sum("load" in one.timings.phases for one in loading)
    assert prediction.counts.trainer_starts == sum("load" in one.timings.phases for one in trained)
    switched = [one for one in trained if "switch" in one.timings.phases]
    refreshes = sum(made.history.updates["staleness"] == 0) if switched else 0
    assert prediction.counts.refreshes == refreshes


def test_bytes_that_stay(pair: tuple[Made, Prediction]) -> None:
    made, prediction = pair
    policies = made.history.of_kind("policy")
    assert prediction.policy_bytes == pytest.approx(
        sum(file.bytes for one in policies for file in one.files.values()), rel=0.02
    )
    assert made.store.remote is not None
    folders = ("prompts", "policy", "rollouts", "verdicts", "evaluation", "average", "report")
    kept = {key: size for key, size in made.store.remote.sizes("").items() if key.split("/")[0] in folders}
    data = sum(size for key, size in kept.items() if not key.endswith("manifest.json"))
    assert prediction.traffic.kept == pytest.approx(data, rel=0.2)


def test_requests(pair: tuple[Made, Prediction]) -> None:
    made, prediction = pair
    assert prediction.traffic.puts == pytest.approx(made.puts, rel=0.2)
    assert prediction.traffic.gets == pytest.approx(made.gets, rel=0.2)
