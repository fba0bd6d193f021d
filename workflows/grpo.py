"""The near-on-policy baseline: the same steps, prompts and updates, with generation and optimization in one task.

    pyflyte run workflows/grpo.py grpo --inputs-file configs/tiny-cpu-grpo.yaml

It has as many stages as Mu-GRPO, so that both are evaluated after the same numbers of updates.
"""

from typing import Unpack

from tasks.flyte.decorators import named, unpack_options, workflow
from tasks.flyte.inputs import OPTIONS, RunOptions
from tasks.flyte.uncached import close_run, open_run
from tasks.report.summary import RunSummary
from tasks.settings.run import STAGES
from workflows.mu_grpo import add_stages


@workflow
@unpack_options(**OPTIONS)
def grpo(updates_per_rollout: int = 4, **options: Unpack[RunOptions]) -> RunSummary:
    """Train with any preset at any mu (updates_per_rollout), by default 4."""
    run = named(open_run(updates_per_rollout=updates_per_rollout, **options), "open-run")
    return named(close_run(inputs=run.run, report=add_stages(run, STAGES, alternating=True)), "close-run")
