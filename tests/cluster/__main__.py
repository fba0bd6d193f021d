"""The command against a real API server, with the roles that k8s/components/preflight grants and no others.

python -m tests.cluster               prints it
python -m tests.cluster --page PAGE   renews it in a page
"""

import argparse
import sys
import tempfile
from pathlib import Path

from tests.cluster.control_plane import PROGRAMS, ControlPlane, programs
from tests.cluster.pool import apply_pool
from tests.preflight.__main__ import printed, renewed
from tests.preflight.services import Flyte, Registry
from tools.s3 import server


def main() -> None:
    """Prints, or writes the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--page", type=Path, help="the page whose example is renewed")
    page, found = parser.parse_args().page, programs()
    if found is None:
        sys.exit(f"no API server here: {PROGRAMS} names no folder with etcd and kube-apiserver (make control-plane)")
    with tempfile.TemporaryDirectory() as name, server() as s3, Registry() as registry, Flyte() as flyte:
        folder = Path(name)
        (folder / "overlay").mkdir()
        with ControlPlane(folder, found) as plane:
            apply_pool(plane, folder / "overlay")
            example = printed(plane.kubeconfig("researcher"), registry, flyte, s3, folder)
    if page is None:
        print(example)
    else:
        renewed(page, "On a real API server", example)


if __name__ == "__main__":
    main()
