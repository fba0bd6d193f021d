"""Tasks and workflows as they are registered with a cluster, read from a package of ``pyflyte package``."""

import os
import re
import tarfile
from dataclasses import dataclass
from pathlib import Path

from flyteidl.admin import launch_plan_pb2, task_pb2, workflow_pb2

from tools import ROOT
from tools.forked import run


@dataclass(frozen=True)
class Serialised:
    """The contents of a package, by name."""

    tasks: dict[str, task_pb2.TaskSpec]
    workflows: dict[str, workflow_pb2.WorkflowSpec]
    launch_plans: dict[str, launch_plan_pb2.LaunchPlan]
    code: dict[str, bytes]
    """The archive of the code; empty if the code is not copied."""


def function_of(name: str) -> str:
    """Return the name of the function of a task or a map task."""
    return re.sub(r"^map_(\w+)_[0-9a-f]{32}-arraynode$", r"\1", name.rpartition(".")[2])


def serialise(folder: Path, deployment: Path, package_of: str = "workflows", copy: str = "none") -> Serialised:
    """Package workflows for a deployment by the real command. ``copy`` is its option: none, all or auto."""
    package = folder / "package.tgz"
    command = [
        *("pyflyte", "--pkgs", package_of, "package", "--image", "unused:latest", "--source", str(ROOT)),
        *("--output", str(package), "--force", "--copy", copy),
    ]
    done = run(command, {**os.environ, "MU_GRPO_DEPLOYMENT": str(deployment)})
    assert done.returncode == 0, done.stdout + done.stderr
    serialised = Serialised({}, {}, {}, {})
    with tarfile.open(package) as archive:
        for member in archive:
            file = archive.extractfile(member)
            assert file is not None
            content = file.read()
            if member.name.endswith("_1.pb"):
                task = task_pb2.TaskSpec.FromString(content)
                serialised.tasks[task.template.id.name] = task
            elif member.name.endswith("_2.pb"):
                workflow = workflow_pb2.WorkflowSpec.FromString(content)
                serialised.workflows[workflow.template.id.name] = workflow
            elif member.name.endswith("_3.pb"):
                plan = launch_plan_pb2.LaunchPlan.FromString(content)
                serialised.launch_plans[plan.id.name] = plan
            elif member.name.endswith(".tar.gz"):
                serialised.code[member.name] = content
    return serialised
