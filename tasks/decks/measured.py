"""What is looked at of a policy's evaluations."""

import json

from tasks.decks.contents import Contents, Shelf, Table
from tasks.report.evaluated import headline
from tasks.report.examples import examples_of
from tasks.report.formats import MISSING, label, number, percent, percent_range


def evaluation_contents(shelf: Shelf) -> Contents:
    """Accuracies with intervals, outcomes, examples."""
    made = Contents()
    for path in shelf.files("metrics.json"):
        metrics = json.loads(path.read_text())
        k, benchmarks = metrics["k"], len(metrics.get("benchmarks", ()))
        titles = {
            "accuracy": headline(k, benchmarks).capitalize() if benchmarks > 1 else headline(k, benchmarks),
            "greedy": "Greedy",
            "majority": f"maj@{k}" if k else "maj@k",
            "working": "Show working",
        }
        for name, title in titles.items():
            if estimate := metrics.get(name):
                shown = f"{title} (95 %)" if "low" in estimate else title
                made.tiles[shown] = _with_interval(estimate)
        made.tiles["Problems"] = number(metrics["problems"])
        made.tiles["Mean tokens"] = number(metrics.get("response_tokens"))
        made.tiles["Truncated"] = percent(metrics.get("truncated"))
        made.count("responses by outcome", {label(name): count for name, count in metrics["outcomes"].items()})
        levels = [[level, percent(value)] for level, value in metrics.get("by_level", {}).items()]
        if len(levels) > 1:
            made.tables.append(Table.of_first("Accuracy by level", ["level", "avg@k"], levels))
        passed = [[f"pass@{one}", _with_interval(estimate)] for one, estimate in metrics.get("pass", {}).items()]
        if len(passed) > 1:
            made.tables.append(Table.of_first("One of k is correct", ["", "share of problems (95 %)"], passed))
    made.warn(manifest.facts for manifest in shelf.manifests)
    for path in shelf.files("samples.parquet"):
        made.examples = examples_of(path)
    return made


def average_contents(shelf: Shelf) -> Contents:
    """The mean, and the evaluations that it is of: Flyte shows no decks of map tasks."""
    evaluations = shelf.parents("evaluations")
    if len(evaluations.manifests) == 1:
        return evaluation_contents(evaluations)
    made = evaluation_contents(shelf)
    rows = []
    for manifest in evaluations.manifests:
        one = Shelf(shelf.store, [manifest])
        for path in one.files("metrics.json"):
            metrics = json.loads(path.read_text())
            accuracies = [metrics["accuracy"], metrics["pass"][str(metrics["k"])], metrics["majority"]]
            shares = [_with_interval(estimate) if estimate else MISSING for estimate in accuracies]
            counted = [number(metrics["problems"]), str(metrics["k"]), *shares, percent(metrics["truncated"])]
            rows.append([label(metrics["benchmark"]), *counted])
        made.examples += [example for path in one.files("samples.parquet") for example in examples_of(path)[:2]]
    headings = ["benchmark", "problems", "k", "avg@k (95 %)", "pass@k (95 %)", "maj@k (95 %)", "truncated"]
    made.tables.append(Table.of_first("By benchmark", headings, rows))
    made.warn(manifest.facts for manifest in evaluations.manifests)
    return made


def _with_interval(estimate: dict[str, float]) -> str:
    """As in ``76.2 % (73.2 to 79.2)``; a mean that has no interval stands alone."""
    interval = f" ({percent_range(estimate['low'], estimate['high'])})" if "low" in estimate else ""
    return percent(estimate["value"]) + interval
