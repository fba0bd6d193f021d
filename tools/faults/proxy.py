"""mitmproxy in front of an S3 server. It runs in its own environment, because its pins clash with the project's."""

import json
import subprocess
import urllib.request
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tools.s3 import S3, free_port, wait_until_open
from tools.system_programs import require

ADDON = Path(__file__).with_name("flaky.py")
FAULTS = ("slow_down", "internal_error", "reset_before", "reset_after", "delay", "truncated")
"""Transient faults of networks and servers. Other faults of the addon, such as ``expired_token``, are used alone."""


class Proxy:
    """A running proxy. Every request passes until ``fail`` is called."""

    def __init__(self, port: int, log: Path) -> None:
        self.endpoint = f"http://127.0.0.1:{port}"
        self._log = log

    def fail(self, share: float, faults: Sequence[str] = FAULTS, after: int = 0, where: str = "") -> None:
        """Disturb a share of the requests from now on.

        Args:
            share: share of the requests that get a fault.
            faults: faults with equal probabilities.
            after: number of requests that pass first.
            where: regular expression for method and path, as in ``GET /bucket/key``. Requests without a match pass.
        """
        self._log.write_text("")
        plan = json.dumps({"share": share, "faults": list(faults), "after": after, "where": where}).encode()
        urllib.request.urlopen(urllib.request.Request(f"{self.endpoint}/flaky", plan, method="PUT"), timeout=30).close()

    def heal(self) -> None:
        """Let every request pass from now on."""
        self.fail(0)

    def counts(self) -> Counter[str]:
        """Return the number of requests since the last ``fail`` or ``heal``, by fault or ``passed``."""
        return Counter(json.loads(line)["fault"] for line in self._log.read_text().splitlines())


@contextmanager
def proxy(server: S3, folder: Path, seed: int = 0) -> Iterator[Proxy]:
    """Start the proxy in front of a server. Its log and its certificates are in the folder."""
    port, log = free_port(), folder / "requests.jsonl"
    # The client's host name is kept, so that a server that checks signatures accepts the request.
    options = [f"confdir={folder}", f"flaky_log={log}", f"flaky_seed={seed}", "keep_host_header=true"]
    command = [
        *(require("mitmdump"), "--quiet", "--scripts", str(ADDON), "--mode", f"reverse:{server.endpoint}"),
        *("--listen-host", "127.0.0.1", "--listen-port", str(port)),
        *(word for option in options for word in ("--set", option)),
    ]
    with (
        (folder / "output.txt").open("w") as output,
        subprocess.Popen(command, stdout=output, stderr=output) as process,
    ):
        try:
            wait_until_open(process, port)
            running = Proxy(port, log)
            running.heal()
            yield running
        finally:
            process.kill()
