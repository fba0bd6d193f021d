"""Simulated HTTP interfaces of a registry and of Flyte's admin, for the requests of a preflight."""

from werkzeug import Request

from tests.preflight.http_server import Answer, HttpServer

WORKFLOW, ALTERNATING = "workflows.mu_grpo.mu_grpo", "workflows.grpo.grpo"


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
        self.versions = ["v1", "v2"]
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
            versions = self.versions[-1:] if name in self.workflows else []
            latest = [{"resource_type": "WORKFLOW", "name": name, "version": one} for one in versions]
            return Answer(body={"workflows": [{"id": one, "closure": None} for one in latest], "token": ""})
        return Answer(body={})  # Flyte answers so for a project that does not exist.
