"""The near-on-policy baseline: the same steps, prompts and updates, with generation and optimization in one task.

    pyflyte run workflows/grpo.py grpo --inputs-file configs/tiny-cpu-grpo.yaml

The updates are cut into as many parts as Mu-GRPO has stages, so that both are evaluated after the same updates.
"""

from typing import Unpack

from tasks.flyte.decorators import named, unpack_options, workflow
from tasks.flyte.ends import close_run, open_run
from tasks.flyte.inputs import OPTIONS, RunOptions
from tasks.report.summary import RunSummary
from workflows.mu_grpo import STAGES, report_of
from workflows.stages import in_turns


@workflow
@unpack_options(**OPTIONS)
def grpo(updates_per_rollout: int = 4, **options: Unpack[RunOptions]) -> RunSummary:
    """Any preset at any mu (updates_per_rollout); GRPO with mu = 4 by default."""
    run = named(open_run(updates_per_rollout=updates_per_rollout, **options), "open-run")
    return named(close_run(inputs=run.run, report=report_of(run, STAGES, in_turns)), "close-run")
