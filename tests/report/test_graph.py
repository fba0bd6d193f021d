"""The picture of the workflow shows its tasks, stage by stage."""

from tests.report.pages import texts
from tools.graphs import AFTER, BEFORE, PICTURE, columns, picture


def test_the_readme_shows_the_workflow() -> None:
    """`make graph` renews it."""
    steps = ["prepare_prompts", "generate", "verify", "optimize", "evaluate"]
    assert [card.task for card in columns()["stage 4"]] == steps
    assert list(columns()) == [BEFORE, *(f"stage {number}" for number in range(1, 5)), AFTER]
    kept = PICTURE.read_text(encoding="utf-8")
    assert texts(kept) == texts(picture())
    assert "prefers-color-scheme: dark" in kept
    assert "docs/mu_grpo.svg" in (PICTURE.parents[1] / "README.md").read_text()
