"""Tables of known benchmarks and training sets."""

from rich.table import Table

from tasks.formats import DASH
from tasks.report.tables import folding_table
from tasks.settings import BENCHMARKS, TRAINING_SETS, BenchmarkSettings, SourceSettings

_GOLD = {"plain": "", "hashes": " (after ####)", "boxed": " (in a box)", "livecodebench": ""}


def benchmarks_table() -> Table:
    """Return a table of known benchmarks, with the statements of the paper and the choices made here."""
    table = folding_table("name", "source", "commit", "fields", "problems", "samples", "the paper", "chosen here")
    for name, benchmark in BENCHMARKS.items():
        settings = BenchmarkSettings.parse({"name": name})
        samples = str(settings.samples_per_problem or "as in the run")
        table.add_row(
            name,
            *_source(settings.source),
            str(settings.problems or "as in the run"),
            f"{samples}{', greedy' if settings.greedy else ''}",
            benchmark.stated,
            benchmark.chosen or DASH,
        )
    return table


def training_sets_table() -> Table:
    """Return a table of known training sets."""
    table = folding_table("name", "source", "commit", "fields", "rows", "about")
    for name, training_set in TRAINING_SETS.items():
        source = _source(SourceSettings.parse(training_set.source))
        table.add_row(name, *source, str(training_set.rows or DASH), training_set.about)
    return table


def _source(source: SourceSettings | None) -> tuple[str, str, str]:
    if source is None:
        return "held-out prompts", DASH, DASH
    first, *others = source.files
    files = first + (f" and {len(others)} more" if others else "")
    identity = f", {source.id}" if source.id else ""
    fields = f"{source.prompt}, {source.answer}{_GOLD[source.gold]}{identity}"
    return f"{source.hub}: {files}", source.pinned[:12] or "looked up", fields
