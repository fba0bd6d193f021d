"""Faults between a client and an S3 server: an addon of mitmdump (see ``tools/faults/proxy.py``).

The addon runs in .venv-proxy, so it imports nothing of the project. A PUT on ``/flaky`` replaces the plan. Without a
plan, every request passes. The log has a line per request: its number since the PUT, its fault, its method and path.
"""

import asyncio
import json
import random
import re
from pathlib import Path

from mitmproxy import ctx, http
from mitmproxy.addonmanager import Loader

PLAN_PATH = "/flaky"
PASSED = "passed"
ERRORS = {
    "slow_down": (503, "SlowDown", "Please reduce your request rate."),
    "internal_error": (500, "InternalError", "We encountered an internal error. Please try again."),
    "expired_token": (400, "ExpiredToken", "The provided token has expired."),
    "unknown_key": (404, "XAdminUserNotFound", "No user exists with the provided access key ID."),  # as versitygw does
    "access_denied": (403, "AccessDenied", "Access Denied"),
    "no_such_upload": (404, "NoSuchUpload", "The specified upload does not exist."),
}
AFTER_THE_SERVER = ("reset_after", "truncated", "no_such_upload", "no_condition")
WITHOUT_BODY = (204, 304)


class Flaky:
    """Addon that disturbs a share of the requests.

    The plan has the ``share``, the ``faults`` to draw from, the number of requests that pass first (``after``), and a
    regular expression (``where``). Requests whose method and path do not match the expression pass.
    """

    def __init__(self) -> None:
        self.plan = {"share": 0.0, "faults": [], "after": 0, "where": ""}
        self.seen = 0
        self.draw = random.Random()

    def load(self, loader: Loader) -> None:
        loader.add_option("flaky_log", str, "", "The log of what was done.")
        loader.add_option("flaky_seed", int, 0, "Determines which requests of a plan fail.")

    async def request(self, flow: http.HTTPFlow) -> None:
        if flow.request.path == PLAN_PATH:
            self.plan = json.loads(flow.request.content or b"")
            self.seen = 0
            self.draw = random.Random(ctx.options.flaky_seed)
            flow.response = http.Response.make(200)
            return
        fault = self._fault(flow)
        flow.metadata["fault"] = fault
        if fault in AFTER_THE_SERVER:
            return
        if fault in ERRORS:
            flow.response = refusal(fault, flow.request.method)
        elif fault == "reset_before":
            flow.kill()
        elif fault == "delay":
            await asyncio.sleep(self.draw.uniform(0.2, 2))

    def response(self, flow: http.HTTPFlow) -> None:
        fault = flow.metadata.get("fault")
        if fault not in AFTER_THE_SERVER or flow.response is None:
            return
        if fault in ERRORS:
            flow.response = refusal(fault, flow.request.method)
        elif fault == "no_condition":  # Some servers do not name the condition that failed.
            flow.response.content = re.sub(rb"<Condition>.*</Condition>", b"", flow.response.content or b"")
        elif fault == "reset_after" or flow.request.method == "HEAD" or flow.response.status_code in WITHOUT_BODY:
            flow.kill()
        else:
            body = flow.response.raw_content or b""
            flow.response.headers.pop("Transfer-Encoding", None)
            flow.response.headers["Content-Length"] = str(len(body) or 1)
            flow.response.headers["Connection"] = "close"
            flow.response.data.content = body[: len(body) // 2]  # The property would correct the length.

    def _fault(self, flow: http.HTTPFlow) -> str:
        self.seen += 1
        method, path = flow.request.method, flow.request.path
        match = self.seen > self.plan["after"] and re.search(self.plan["where"], f"{method} {path}")
        fault = self.draw.choice(self.plan["faults"]) if match and self.draw.random() < self.plan["share"] else PASSED
        line = {"number": self.seen, "fault": fault, "method": method, "path": path}
        with Path(ctx.options.flaky_log).open("a") as log:
            log.write(json.dumps(line) + "\n")
        return fault


def refusal(fault: str, method: str) -> http.Response:
    """Return the server's response for an error."""
    status, code, message = ERRORS[fault]
    text = f"<Error><Code>{code}</Code><Message>{message}</Message></Error>"
    # A response to HEAD has no body, so the client sees only the status.
    return http.Response.make(status, "" if method == "HEAD" else text, {"Content-Type": "application/xml"})


addons = [Flaky()]
