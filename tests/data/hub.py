"""A server that answers as the Hugging Face hub does where data sets are fetched, and a client in a process of its own.

python -m tests.data.hub STORE SETTINGS...      prepares benchmarks, a line of JSON for each

The library reads the hub's address when it is imported, so a test that has imported it cannot change it.
"""

import hashlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq

Commits = dict[str, dict[str, bytes]]
"""Files by name, by commit; the last one is ``main``."""


def lines(rows: list[dict[str, Any]]) -> bytes:
    """A file of JSON-lines."""
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def parquet(rows: list[dict[str, Any]]) -> bytes:
    """A parquet file."""
    file = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), file)
    return file.getvalue()


class Hub:
    """Data sets, by their names."""

    def __init__(self) -> None:
        self.sets: dict[str, Commits] = {}
        self.requests: list[str] = []
        self.address = ""

    def answer(self, path: str) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of an answer."""
        self.requests.append(path)
        parts = unquote(urlsplit(path).path).strip("/").split("/")
        api, parts = (True, parts[1:]) if parts[0] == "api" else (False, parts)
        found = self.sets.get("/".join(parts[1:3]))
        if parts[0] != "datasets" or found is None:
            return 404, {"X-Error-Code": "RepoNotFound"}, b"{}"
        asked, revision = parts[3], parts[4]
        commit = list(found)[-1] if revision == "main" else revision
        if commit not in found:
            return 404, {"X-Error-Code": "RevisionNotFound"}, b"{}"
        files = found[commit]
        if api and asked == "revision":
            return 200, {}, json.dumps({"id": "/".join(parts[1:3]), "sha": commit, "siblings": []}).encode()
        if api and asked == "tree":
            entries = [
                {"type": "file", "path": name, "size": len(content), "oid": hashlib.sha1(content).hexdigest()}
                for name, content in files.items()
            ]
            return 200, {}, json.dumps(entries).encode()
        content = files.get("/".join(parts[5:]))
        if content is None:
            return 404, {"X-Error-Code": "EntryNotFound"}, b""
        return 200, {"X-Repo-Commit": commit, "ETag": f'"{hashlib.sha1(content).hexdigest()}"'}, content


@contextmanager
def hub() -> Iterator[Hub]:
    """A running server."""
    state = Hub()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, headers, body = state.answer(self.path)
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        do_HEAD = do_GET

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        state.address = f"http://127.0.0.1:{server.server_port}"
        try:
            yield state
        finally:
            server.shutdown()


def prepared(address: str, store: Path, *settings: dict[str, Any], offline: bool = False) -> list[dict[str, Any]]:
    """What came of preparing benchmarks: facts of their manifests, or the message of an error."""
    environment = {"HF_ENDPOINT": address, "HF_HUB_OFFLINE": str(int(offline)), "HF_HOME": str(store.parent / "hf")}
    done = subprocess.run(
        [sys.executable, "-m", "tests.data.hub", str(store), *map(json.dumps, settings)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def main() -> None:
    """The client."""
    from tasks.data.benchmarks import prepare_benchmark
    from tasks.data.sources import with_commits
    from tasks.errors import UserError
    from tasks.settings import EvaluateSettings, PromptsSettings, VerifySettings
    from tasks.settings.evaluate import measures
    from tasks.store import Store

    prompts = PromptsSettings(path="unused.jsonl", prompts_per_stage=1, template="Q: {prompt}")
    for text in sys.argv[2:]:
        store = Store.open(sys.argv[1])
        try:
            asked = EvaluateSettings.parse({"max_new_tokens": 8, "benchmarks": [json.loads(text)]})
            (one,) = measures(with_commits(asked, None), prompts, VerifySettings(workers=1), None)
            manifest = store.manifest(prepare_benchmark(store, one.benchmark, one.verify, ""))
            print(json.dumps(manifest.facts | {"digest": manifest.digest}), flush=True)
        except UserError as error:
            print(json.dumps({"error": error.message}), flush=True)


if __name__ == "__main__":
    main()
