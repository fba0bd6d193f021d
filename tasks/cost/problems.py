"""How many problems a benchmark has, and how many answers it asks for, without fetching it."""

from tasks.prompts.arithmetic import split
from tasks.settings import RunSettings
from tasks.settings.evaluate import Measure


def problems_of(run: RunSettings, measure: Measure) -> int:
    """Of a file whose rows nobody has counted yet, as many as ``evaluate.problems``."""
    if measure.benchmark.problems is not None:
        return measure.benchmark.problems
    source = measure.benchmark.source
    if source is not None and source.arithmetic is not None:
        return len(split(list(source.arithmetic.levels), source.arithmetic.held_out_share)[1])
    return run.evaluate.problems


def answers_of(run: RunSettings, measure: Measure) -> int:
    """Responses of one evaluation."""
    return problems_of(run, measure) * (measure.evaluation.samples_per_problem + measure.evaluation.greedy)
