import pytest

from tasks.report.step import write_report
from tasks.store import ArtifactRef, Store
from tests.report.pages import figures_of
from tests.report.synthetic import SyntheticRun, make_run


@pytest.fixture
def run(tmp_path) -> SyntheticRun:
    """A run that has made nothing yet."""
    return SyntheticRun(Store.open(tmp_path))


@pytest.fixture(scope="session")
def mu_grpo(tmp_path_factory) -> SyntheticRun:
    return make_run(tmp_path_factory.mktemp("mu_grpo"), 4)


@pytest.fixture(scope="session")
def mu_grpo_report(mu_grpo) -> ArtifactRef:
    return write_report(mu_grpo.store, mu_grpo.evaluations, 0)


@pytest.fixture(scope="session")
def figures(mu_grpo, mu_grpo_report) -> dict[str, str]:
    return figures_of(mu_grpo.store.path(mu_grpo_report))


@pytest.fixture(scope="session")
def page(mu_grpo, mu_grpo_report) -> str:
    return (mu_grpo.store.path(mu_grpo_report) / "report.html").read_text(encoding="utf-8")


@pytest.fixture(scope="session")
def grpo(tmp_path_factory) -> SyntheticRun:
    return make_run(tmp_path_factory.mktemp("grpo"), 4, preset="grpo", updates_per_rollout=4)
