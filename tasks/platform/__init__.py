"""Pods, attempts and caching of Flyte tasks: with task.py and workflows/, the only modules that know Flyte."""

from tasks.platform.pods import DEPLOYMENT
from tasks.platform.steps import Artifact, StoreHandle, always, named, once, step, unrolling
from tasks.platform.versions import judging

__all__ = ["DEPLOYMENT", "Artifact", "StoreHandle", "always", "judging", "named", "once", "step", "unrolling"]
