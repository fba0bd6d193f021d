"""The comparison of the arms of a part of the laboratory, as an artifact."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tasks.evaluate.statistics import DIFFERENCES, bootstrap_p, draws, holm, interval
from tasks.experiments.questions import QUESTIONS, Arm
from tasks.experiments.result import ArmResult, LaboratoryResult
from tasks.report import drawing
from tasks.report.drawing import PLAIN, Chart, Panel, Series
from tasks.store import ArtifactRef, Store
from tasks.store.layout import CURVE_FILE, METRICS_FILE
from tasks.store.tables import read_table

FIGURE = "curves.svg"


@dataclass
class _Runs:
    """The runs of an arm. Legend of shapes: S seeds, E evaluations, P problems."""

    result: ArmResult
    update_E: npt.NDArray[np.int64]
    accuracy_SE: npt.NDArray[np.float64]
    last_SP: npt.NDArray[np.float64]


def compare_arms(store: Store, part: str, studies: Sequence[ArtifactRef]) -> ArtifactRef:
    """Compare the arms of a part.

    Args:
        store: the store with all artifacts.
        part: a, b, c or d.
        studies: the studies of the first arm, one per seed, then those of the second arm in the same order of seeds,
            and so on.

    Returns:
        A laboratory artifact with result.json and curves.svg.
    """
    question = QUESTIONS[part]
    seeds, rest = divmod(len(studies), len(question.arms))
    assert not rest, f"{len(studies)} studies for {len(question.arms)} arms"
    with store.write("laboratory", settings={"part": part}, parents={"studies": list(studies)}, seed=0) as draft:
        runs = [
            _load(store, arm, studies[index * seeds : (index + 1) * seeds]) for index, arm in enumerate(question.arms)
        ]
        reference = next(one for one in runs if one.result.name == question.reference)
        others = [one for one in runs if one is not reference]
        differences = [draws([{"": one.last_SP - reference.last_SP}], DIFFERENCES) for one in others]
        adjusted = holm([bootstrap_p(difference) for difference in differences])
        for one, difference, p in zip(others, differences, adjusted, strict=True):
            one.result = one.result.model_copy(update={"difference": difference.interval(), "p": p})
        result = LaboratoryResult(
            part=part,
            title=question.title,
            asks=question.text,
            reference=question.reference,
            seeds=seeds,
            problems=reference.last_SP.shape[1],
            updates=max(int(one.update_E[-1]) for one in runs),
            base=float(reference.accuracy_SE[:, 0].mean()),
            arms=[one.result for one in runs],
        )
        result.save(draft.path)
        (draft.path / FIGURE).write_text(_draw(runs, f"laboratory-{part}", question.title), encoding="utf-8")
        draft.facts.update(part=part, updates=result.updates)
    return draft.ref


def find_parts(store: Store, reports: Sequence[ArtifactRef]) -> list[LaboratoryResult]:
    """Return the laboratory's results in the latest reproduction that has these reports.

    Without such a reproduction, or if it has no such results, return the latest result of each part in the store.

    Raises:
        ArtifactError: the store cannot be read.
    """
    matches = (one for one in store.manifests("reproduction") if one.parents["reports"] == list(reports))
    refs = next((one.parents["laboratory"] for one in matches), [])
    if not refs:
        latest = {manifest.facts["part"]: manifest.ref for manifest in reversed(store.manifests("laboratory"))}
        refs = [latest[part] for part in sorted(latest)]
    return [LaboratoryResult.load(store, ref) for ref in refs]


def _draw(runs: Sequence[_Runs], name: str, title: str) -> str:
    """Draw accuracy over updates as SVG: a panel per arm, with a thin line per seed and a thick line for their mean."""
    series = []
    for one in runs:
        seeds = [Series(one.result.name, "seed", one.update_E, each, look=PLAIN.thin()) for each in one.accuracy_SE]
        series += [*seeds, Series(one.result.name, "mean", one.update_E, one.accuracy_SE.mean(0))]
    panels = {one.result.name: Panel(one.result.name, "percent") for one in runs}
    with drawing.style():
        figure = Chart(series, panels, "update", heading="held-out accuracy", same_scale=True).draw()
        return drawing.to_svg(figure, name, f"{title}. Accuracy over updates; thin lines are seeds.")


def _load(store: Store, arm: Arm, studies: Sequence[ArtifactRef]) -> _Runs:
    folders = store.paths(studies)
    curves = [read_table(folder / CURVE_FILE).to_pydict() for folder in folders]
    longest = max((curve["update"] for curve in curves), key=max)
    # A run that was stopped keeps its last accuracy.
    accuracies = [curve["accuracy"] + curve["accuracy"][-1:] * len(longest) for curve in curves]
    accuracy_SE = np.array([one[: len(longest)] for one in accuracies])
    last_SP = np.array([curve["problem_accuracy"][-1] for curve in curves])
    stopped = [str(store.manifest(ref).facts["stopped"]) for ref in studies]
    paths = [folder / METRICS_FILE for folder in folders]
    names = ("veto_fraction", "clip_fraction")
    tables = [read_table(path, columns=["tokens", *names]) for path in paths if path.is_file()]
    tokens = [count for table in tables for count in table["tokens"].to_pylist()]
    shares = [[share or 0.0 for table in tables for share in table[name].to_pylist()] for name in names]
    vetoed, clipped = (float(np.average(one, weights=tokens)) if tokens else None for one in shares)
    result = ArmResult(
        name=arm.name,
        accuracy=interval([{"": last_SP}]),
        by_seed=last_SP.mean(1).tolist(),
        best=float(accuracy_SE.max(1).mean()),
        vetoed=vetoed,
        clipped=clipped,
        stopped=[message for message in stopped if message],
    )
    return _Runs(result, np.array(longest), accuracy_SE, last_SP)
