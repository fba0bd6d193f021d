"""The near-on-policy baseline: the same steps, prompts and updates, with generation and optimization in one task.

    pyflyte run workflows/grpo.py grpo --inputs-file configs/tiny-cpu-grpo.yaml

The updates are cut into as many parts as Mu-GRPO has stages, so that both are evaluated after the same updates.
"""

from typing import Any

from tasks.flyte.decorators import named, workflow
from tasks.flyte.ends import close_run, open_run
from tasks.report.summary import RunSummary
from workflows.inputs import RUN, inputs_of
from workflows.mu_grpo import STAGES, report_of
from workflows.stages import in_turns


@workflow
@inputs_of(open_run, without=("arm", "trained_from"), **RUN)
def grpo(updates_per_rollout: int = 4, **settings: Any) -> RunSummary:
    """Any preset at any mu (updates_per_rollout); GRPO with mu = 4 by default."""
    run = named(open_run(updates_per_rollout=updates_per_rollout, **settings), "open-run")
    return named(close_run(inputs=run.run, report=report_of(run, STAGES, in_turns)), "close-run")
