"""A small HTTP server that records requests and answers them by a method."""

import json
import threading
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Self

from werkzeug import Request, Response
from werkzeug.serving import WSGIRequestHandler, make_server


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
