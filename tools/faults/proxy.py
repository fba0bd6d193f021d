"""mitmproxy in front of an S3 server, as a process of its own environment: its pins clash with the project's."""

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
"""Faults of networks and servers that pass. Others of the addon are named alone, as ``expired_token``."""


class Proxy:
    """A running proxy; it lets every request pass until it is told otherwise."""

    def __init__(self, port: int, log: Path) -> None:
        self.endpoint = f"http://127.0.0.1:{port}"
        self._log = log

    def fail(self, share: float, faults: Sequence[str] = FAULTS, after: int = 0, where: str = "") -> None:
        """Give a share of the requests one of these faults from now on.

        Args:
            share: of the requests.
            faults: each as likely as the others.
            after: so many requests pass first.
            where: an expression; requests in whose method and path, as in ``GET /bucket/key``, it is not found pass.
        """
        self._log.write_text("")
        plan = json.dumps({"share": share, "faults": list(faults), "after": after, "where": where}).encode()
        urllib.request.urlopen(urllib.request.Request(f"{self.endpoint}/flaky", plan, method="PUT"), timeout=30).close()

    def heal(self) -> None:
        """Let every request pass from now on."""
        self.fail(0)

    def counts(self) -> Counter[str]:
        """Requests by fault, or ``passed``, since the last ``fail`` or ``heal``."""
        return Counter(json.loads(line)["fault"] for line in self._log.read_text().splitlines())


@contextmanager
def proxy(server: S3, folder: Path, seed: int = 0) -> Iterator[Proxy]:
    """Starts the proxy in front of a server; its log and its certificates are in the folder."""
    port, log = free_port(), folder / "requests.jsonl"
    # With the client's host name kept, a server that checks signatures accepts what passed through the proxy.
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
            wait_until_open(port)
            running = Proxy(port, log)
            running.heal()
            yield running
        finally:
            process.kill()
