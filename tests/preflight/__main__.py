"""Run the command on a simulated cluster with four faults, and write its output into a page."""

import argparse
import tempfile
from pathlib import Path

from tasks.cli.pages import replace_between_marks
from tests.cli.synthetic import command
from tests.preflight.clusters import right
from tests.preflight.conftest import CONFIG, TAG, deployment_of
from tests.preflight.services import Flyte, Registry
from tests.preflight.spoiled import no_key, occupied, tainted
from tools.s3 import server


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--page", type=Path, required=True, help="the page whose example is renewed")
    page = parser.parse_args().page
    with (
        server() as s3,
        right("gpu-pool") as cluster,
        Registry() as registry,
        Flyte() as flyte,
        tempfile.TemporaryDirectory() as name,
    ):
        folder = Path(name)
        tainted(cluster)
        no_key(cluster)
        for node in ("gpu-rollout-1", "gpu-rollout-2"):
            occupied(cluster, node, 6)
        flyte.versions = []
        images, store = registry.holding("team/mu-grpo", TAG), f"s3://{s3.bucket()}/runs"
        arguments = ["--config", str(CONFIG), "--deployment", str(deployment_of("gpu-4", folder, images=images))]
        arguments += ["--kubeconfig", str(cluster.kubeconfig(folder)), "--flyte", flyte.url, f"store={store}"]
        done = command("preflight", *arguments, **s3.environment(folder / "cache"))
    given = f"--deployment configs/deployments/gpu-4.yaml --flyte {flyte.url} store={store}"
    shown = "\n".join(text.rstrip() for text in done.stdout.splitlines())
    example = f"$ mu-grpo preflight --config configs/tiny-cpu.yaml {given}\n{shown}\n"
    replace_between_marks(page, "example", f"```text\n{example}```\n")


if __name__ == "__main__":
    main()
