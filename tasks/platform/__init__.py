"""What steps run on, and how they are cached: the only modules outside of task.py and workflows/ that know Flyte."""

from tasks.platform.pods import DEPLOYMENT
from tasks.platform.steps import Artifact, StoreHandle, always, once, step, unrolling
from tasks.platform.versions import judging

__all__ = ["DEPLOYMENT", "Artifact", "StoreHandle", "always", "judging", "once", "step", "unrolling"]
