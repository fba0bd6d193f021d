"""HTTP servers that record requests: the base of simulated servers, a registry, and Flyte's admin."""

import json
import threading
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Self

from werkzeug import Request, Response
from werkzeug.serving import WSGIRequestHandler, make_server

WORKFLOW, ALTERNATING = "workflows.mu_grpo.mu_grpo", "workflows.grpo.grpo"


class Answer(Response):
    """A response; a body that is not bytes is sent as JSON."""

    def __init__(self, status: int = 200, body: Any = None, headers: Mapping[str, str] | None = None) -> None:
        content = body if isinstance(body, bytes) else json.dumps(body)
        super().__init__(content, f"{status} {HTTPStatus(status).phrase}", headers, mimetype="application/json")


class HttpServer:
    """A server that runs until its block ends."""

    def __init__(self, certificate: tuple[str, str] | None = None) -> None:
        self.asked: list[Request] = []
        self.silent = False
        """If True, the server answers nothing before the block ends."""
        self.fixed: dict[str, Answer] = {}
        """Fixed answers by path."""
        self._over = threading.Event()
        options: Any = {"threaded": True, "request_handler": _Quiet, "ssl_context": certificate}
        self._server = make_server("127.0.0.1", 0, self._respond, **options)
        self.port = self._server.port
        self.url = f"{'https' if certificate else 'http'}://127.0.0.1:{self.port}"

    def answer(self, asked: Request) -> Answer:
        raise NotImplementedError

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._server.shutdown()
        self._server.server_close()

    @Request.application
    def _respond(self, asked: Request) -> Answer:
        asked.get_data()
        self.asked.append(asked)
        if self.silent:
            self._over.wait()
            raise ConnectionError
        return self.fixed.get(asked.path) or self.answer(asked)


class _Quiet(WSGIRequestHandler):
    disable_nagle_algorithm = True

    def handle_expect_100(self) -> bool:
        """Send nothing: werkzeug sends the answer 100 itself, and a client may stop its clock at a second one."""
        return True

    def log(self, *_: Any) -> None:
        """Print nothing."""


class Registry(HttpServer):
    """A registry that has images by name, and requires a token if ``login`` is bearer."""

    def __init__(self) -> None:
        super().__init__()
        self.images, self.login = set[str](), ""

    def answer(self, asked: Request) -> Answer:
        if asked.path == "/token":
            return Answer(body={"token": f"for {asked.args['scope']} at {asked.args['service']}"})
        name, _, tag = asked.path.removeprefix("/v2/").partition("/manifests/")
        scope = f"repository:{name}:pull"
        if self.login == "bearer" and asked.headers.get("Authorization") != f"Bearer for {scope} at here":
            challenge = f'Bearer realm="{self.url}/token",service="here",scope="{scope}"'
            return Answer(401, headers={"WWW-Authenticate": challenge})
        if "application/vnd.oci.image.index.v1+json" not in asked.headers.get("Accept", ""):
            return Answer(404)  # Registries answer so if a request does not accept an index.
        return Answer(200 if f"{name}:{tag}" in self.images else 404)

    def holding(self, prefix: str, tag: str) -> str:
        """Add the three images, and return the value for ``images`` of a deployment."""
        self.images |= {f"{prefix}-{role}:{tag}" for role in ("cpu", "rollout", "train")}
        return f"127.0.0.1:{self.port}/{prefix}"


class Flyte(HttpServer):
    """The gateway of flyteadmin, which answers JSON with the field names of its protocol."""

    def __init__(self) -> None:
        super().__init__()
        self.workflows = {WORKFLOW}
        self.version = "v1.16.8"

    def answer(self, asked: Request) -> Answer:
        if asked.path == "/healthcheck":
            return Answer()
        if asked.path == "/api/v1/version":
            return Answer(body={"control_plane_version": {"Build": "", "Version": self.version, "BuildTime": ""}})
        of_project, _, name = asked.path.rpartition("/")
        if of_project == "/api/v1/workflows/mu-grpo/development":
            only_the_latest = {"limit": "1", "sort_by.key": "created_at", "sort_by.direction": "DESCENDING"}
            assert asked.args.to_dict() == only_the_latest
            latest = {"id": {"resource_type": "WORKFLOW", "name": name, "version": "v2"}, "closure": None}
            return Answer(body={"workflows": [latest] if name in self.workflows else [], "token": ""})
        return Answer(body={})  # Flyte answers so for a project that does not exist.
