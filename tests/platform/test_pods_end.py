"""What a pod leaves in its log when it ends, by Flyte's own command in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

from flytekit import FlyteContextManager
from flytekit.core.type_engine import TypeEngine

from tools import ROOT
from tools.s3 import S3


def test_a_pod_that_used_s3_leaves_no_connection_open(s3: S3, tmp_path: Path) -> None:
    name = s3.bucket()
    given = TypeEngine.dict_to_literal_map(
        FlyteContextManager.current_context(), {"store": f"s3://{name}/store"}, {"store": str}
    )
    s3.client().put_object(Bucket=name, Key="inputs.pb", Body=given.to_flyte_idl().SerializeToString())
    command = [
        *(str(Path(sys.executable).with_name("pyflyte-execute")), "--inputs", f"s3://{name}/inputs.pb"),
        *("--output-prefix", f"s3://{name}/outputs", "--raw-output-data-prefix", f"s3://{name}/raw"),
        *("--resolver", "flytekit.core.python_auto_container.default_task_resolver"),
        *("--", "task-module", "tests.platform.closing", "task-name", "opens"),
    ]
    variables = s3.environment(tmp_path / "cache")
    own = {
        "FLYTE_AWS_ENDPOINT": s3.endpoint,
        "FLYTE_AWS_ACCESS_KEY_ID": variables["AWS_ACCESS_KEY_ID"],
        "FLYTE_AWS_SECRET_ACCESS_KEY": variables["AWS_SECRET_ACCESS_KEY"],
    }
    environment = {**os.environ, **variables, **own, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert "outputs/outputs.pb" in s3.keys(name), done.stdout + done.stderr
    assert "nclosed" not in done.stdout + done.stderr
