"""A server of a few lines on this machine: what it is asked is kept, what it answers is a function."""

import json
import ssl
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit


@dataclass(frozen=True)
class Asked:
    """A request."""

    method: str
    path: str
    query: dict[str, str]
    headers: Mapping[str, str]
    raw: bytes

    @property
    def body(self) -> Any:
        return json.loads(self.raw)


@dataclass(frozen=True)
class Answer:
    """What is sent back."""

    status: int = 200
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def content(self) -> bytes:
        return self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()


class HttpServer:
    """Answers until the block ends. Paths below those of ``silent`` are not answered before that."""

    def __init__(self, certificate: tuple[Path, Path] | None = None) -> None:
        self.asked: list[Asked] = []
        self.silent: tuple[str, ...] = ()
        self._over = threading.Event()
        handler = type("Handler", (_Handler,), {"server_of_test": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self.scheme = "http"
        if certificate is not None:
            self.scheme = "https"
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.port = self._server.server_port
        self.url = f"{self.scheme}://127.0.0.1:{self.port}"

    def answer(self, asked: Asked) -> Answer:
        raise NotImplementedError

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._server.shutdown()
        self._server.server_close()

    def respond(self, asked: Asked) -> Answer | None:
        self.asked.append(asked)
        if asked.path.startswith(self.silent):
            self._over.wait()
            return None
        return self.answer(asked)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # Headers and content go out together: apart, the second waits for an acknowledgement.
    server_of_test: HttpServer

    def _handle(self) -> None:
        parts = urlsplit(self.path)
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        asked = Asked(self.command, parts.path, query, self.headers, self._body())
        answer = self.server_of_test.respond(asked)
        if answer is None:
            self.close_connection = True
            return
        content = b"" if answer.body is None or self.command == "HEAD" else answer.content
        try:
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                if name.lower() not in ("content-length", "connection", "transfer-encoding"):
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True  # Who asked has stopped waiting.

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        content = b""
        while size := int(self.rfile.readline(), 16):
            content += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return content

    def handle_expect_100(self) -> bool:
        self.send_response_only(100)
        self.end_headers()
        self.wfile.flush()
        return True

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = _handle

    def log_message(self, *_: Any) -> None:
        """Nothing on the terminal."""
