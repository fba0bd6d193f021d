"""YAML files of the package, beside the modules that read them."""

from pathlib import Path
from typing import Any

import yaml

from tasks.errors import DeploymentError


def read_yaml(module: str, name: str) -> Any:
    """Return the values of the YAML file ``name`` beside a module, given by its ``__file__``.

    Raises:
        DeploymentError: the file is missing, as where modules alone were copied to a pod.
    """
    path = Path(module).with_name(name)
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DeploymentError(
            f"{path} is missing: the code here is a part of the project. pyflyte run --remote brings all of it along "
            "with --copy all; elsewhere install the package again."
        ) from None
