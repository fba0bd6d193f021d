"""The picture of a workflow: what it shows, that it can be read, and what its steps took in a run."""

import xml.etree.ElementTree as ET
from collections.abc import Iterator
from itertools import combinations, pairwise

import pytest

from tasks.artifacts import Store
from tasks.report.graph import Graph, Measured, Node, graph_of, graphs, measured_steps
from tasks.report.graph_drawing import draw
from tasks.report.graph_layout import CARD, Box, Edge, Point, lay_out, longest_chain
from tasks.report.history import load_history
from tests.graphs import PICTURE, picture
from tests.report.clock import Clock, process
from tests.report.svg import SVG, texts
from tests.report.synthetic import SyntheticRun, make_run

Segment = tuple[Point, Point]
every_graph = pytest.mark.parametrize("graph", graphs().values(), ids=graphs().keys())


def measured(run: SyntheticRun) -> dict[tuple[str, int | None], Measured]:
    return measured_steps(load_history(run.store, run.evaluations))


def segments(edge: Edge) -> Iterator[Segment]:
    """Each from its left or upper end."""
    for one, other in pairwise(edge.points):
        assert (one[0] == other[0]) != (one[1] == other[1]), edge
        yield min(one, other), max(one, other)


def inside(box: Box, segment: Segment) -> bool:
    (x, y), (to_x, to_y) = segment
    return x < box.x + CARD[0] and to_x > box.x and y < box.y + CARD[1] and to_y > box.y


def overlap(one: Segment, other: Segment) -> bool:
    """Whether both run along each other for a while."""
    for along, across in ((0, 1), (1, 0)):
        places = {point[across] for point in (*one, *other)}
        if len(places) == 1:
            return max(one[0][along], other[0][along]) < min(one[1][along], other[1][along])
    return False


@every_graph
def test_nothing_lies_on_anything_else(graph: Graph) -> None:
    layout = lay_out(graph)
    for one, other in combinations(layout.boxes.values(), 2):
        apart = abs(one.x - other.x) > CARD[0] + 14, abs(one.y - other.y) > CARD[1] + 14
        assert any(apart), (one, other)
    for edge in layout.edges:
        start, end = layout.boxes[edge.source], layout.boxes[edge.target]
        for corner in edge.points:
            assert 0 < corner[0] < layout.size[0], edge
            assert 0 < corner[1] < layout.size[1], edge
        assert edge.points[0] in {(start.right, start.level), (start.x, start.level)} | {
            (start.middle, start.bottom),
            (start.middle, start.top),
        }
        assert edge.points[-1] in {(end.x, end.level), (end.middle, end.top), (end.middle, end.bottom)}
        for segment in segments(edge):
            assert not [box for box in layout.boxes.values() if inside(box, segment)], edge
    for one, other in combinations(layout.edges, 2):
        if one.source != other.source and one.target != other.target:
            assert not any(overlap(a, b) for a in segments(one) for b in segments(other)), (one, other)


@every_graph
def test_every_step_and_every_dependency_is_drawn(graph: Graph) -> None:
    layout = lay_out(graph)
    assert {(edge.source, edge.target) for edge in layout.edges} == {
        (before, node.id) for node in graph for before in node.after
    }
    svg = draw(graph, "a <title>")
    root = ET.fromstring(svg)
    assert root.find(f"{SVG}title").text == "a <title>"
    said = root.find(f"{SVG}desc").text
    for node in graph:
        assert texts(svg).count(node.task) == len([one for one in graph if one.task == node.task])
        assert node.task in said
    lines = [one.get("d") for one in root.iter(f"{SVG}path") if "fill: none" in one.get("style")]
    assert "".join(lines).count("M") == len(layout.edges)
    for stage in {node.stage for node in graph} - {None}:
        assert f"stage {stage}" in texts(svg)
        assert f"Stage {stage}: prepare_prompts" in said


def test_the_same_step_stands_in_the_same_row() -> None:
    graph = graphs()["mu_grpo"]
    boxes = lay_out(graph).boxes
    for one, other in combinations(graph, 2):
        if one.task == other.task:
            assert boxes[one.id].row == boxes[other.id].row
        if one.stage and other.stage:
            assert (boxes[one.id].column == boxes[other.id].column) == (one.stage == other.stage)


def test_the_readme_shows_the_registered_graph() -> None:
    """`make graph` renews it."""
    assert PICTURE.read_text(encoding="utf-8") == picture(graphs()["mu_grpo"])
    assert "docs/mu_grpo.svg" in (PICTURE.parents[1] / "README.md").read_text()
    assert "prefers-color-scheme: dark" in PICTURE.read_text()
    assert "http" not in PICTURE.read_text().replace('xmlns="http://www.w3.org/2000/svg"', "")


def test_steps_take_what_their_artifacts_took(mu_grpo: SyntheticRun) -> None:
    steps = measured(mu_grpo)
    assert graph_of(steps) == graphs()["mu_grpo"]
    seconds = {step: one.seconds for step, one in steps.items()}
    for stage in (1, 2, 3, 4):
        assert seconds["generate", stage] == pytest.approx(0.4 + 9 + 0.5 + 0.4 + 10 + 0.5)
        assert steps["generate", stage].artifacts == 2
        assert seconds["verify", stage] == pytest.approx(0.1 + 2.5 + 0.5)
        assert seconds["optimize", stage] == pytest.approx(0.5 + 1.5 + 14 + 0.5)
        assert seconds["evaluate", stage] == pytest.approx(0.3 + 4 + 0.7 + 0.5)
    assert seconds["prepare_policy", None] == pytest.approx(31.5)
    assert not [step for step, one in steps.items() if one.found]


def test_a_step_that_alternates_is_one(grpo: SyntheticRun) -> None:
    steps = measured(grpo)
    assert graph_of(steps) == graphs()["grpo"]
    # Its shards, its verdicts and its policy, one after the other.
    assert steps["alternate", 3].seconds == pytest.approx(0.5 * 2 + 0.5 + 0.5 + 1.5 + 14.0 + 24.0 + 2.6 + 6.0 + 0.5)


class SideBySide(SyntheticRun):
    """Both shards are generated at once."""

    def _write(self, kind, *content, **facts):
        started = self.clock.now
        ref = super()._write(kind, *content, **facts)
        if kind == "rollouts":
            self.clock.now = started
        return ref


class Interrupted(SyntheticRun):
    """An earlier attempt made all the updates, and the last one only wrote the policy."""

    def _pass(self, draft, **phases):
        super()._pass(draft, **({} if "logp" in phases else phases))
        draft.earlier.update(phases)


@pytest.mark.parametrize(
    ("kind", "step", "seconds"),
    [(SideBySide, "generate", 0.4 + 10 + 0.5), (Interrupted, "optimize", 0.5 + 1.5 + 14 + 0.5)],
)
def test_time_counts_once_and_that_of_an_interrupted_attempt_counts(tmp_path, kind, step, seconds) -> None:
    clock = Clock()
    run = kind(Store.open(tmp_path), clock)
    with process(clock, "one"):
        run.base().stages(1)
    assert measured(run)[step, 1].seconds == pytest.approx(seconds)


def test_what_an_earlier_process_made_was_found(tmp_path) -> None:
    clock = Clock()
    run = SyntheticRun(Store.open(tmp_path), clock)
    with process(clock, "first"):
        run.base()
    with process(clock, "second"):
        run.stages(1)
    found = {step for step, one in measured(run).items() if one.found}
    assert found == {("prepare_policy", None), ("prepare_benchmark", None), ("evaluate", None)}
    svg = draw(graphs()["mu_grpo_1"], "a run", measured(run))
    assert svg.count("stroke-dasharray") == 1 + 3 + 3  # what is mapped is a pile of cards
    assert "31.5 s, found" in texts(svg)
    assert "generate (2)" in texts(svg)


def test_in_pods_it_is_not_known_what_was_found(tmp_path) -> None:
    clock = Clock()
    run = SyntheticRun(Store.open(tmp_path), clock)
    for number, part in enumerate((run.base, run.train, run.evaluate)):
        with process(clock, f"pod {number}"):
            part()
    assert not [one for one in measured(run).values() if one.found]


@pytest.mark.parametrize("stages", [0, 3])
def test_a_run_of_no_registered_workflow_has_no_picture(tmp_path, stages) -> None:
    run = make_run(tmp_path, stages, updates_per_stage=2, updates_per_rollout=2)
    assert graph_of(measured(run)) is None


def test_the_longest_chain_by_hand() -> None:
    graph = tuple(
        Node(id=name, task=name, image="cpu", after=after)
        for name, after in (("a", ()), ("b", ("a",)), ("c", ("a",)), ("d", ("b", "c")), ("e", ("a",)))
    )
    assert longest_chain(graph, {}) == ["a", "c", "d"]
    assert longest_chain(graph, {"b": 2.0, "c": 1.0}) == ["a", "b", "d"]
    assert longest_chain(graph, {"b": 2.0, "e": 5.0}) == ["a", "e"]
