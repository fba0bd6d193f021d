"""A server that answers as the Hugging Face hub does where data sets are fetched."""

import hashlib
import io
import json
from pathlib import Path
from socket import SHUT_RDWR
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from huggingface_hub import constants
from werkzeug import Request

from tests.preflight.services import Answer, HttpServer

Commits = dict[str, dict[str, bytes]]
"""Files by name, by commit; the last one is ``main``."""


def lines(rows: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def parquet(rows: list[dict[str, Any]]) -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), file)
    return file.getvalue()


class Hub(HttpServer):
    """Data sets, by their names; the connection is lost for those of the owner ``lost``."""

    def __init__(self) -> None:
        super().__init__()
        self.sets: dict[str, Commits] = {}

    def answer(self, asked: Request) -> Answer:
        """About /api/datasets/OWNER/NAME/ there are revision/REVISION and tree/REVISION; files are at /datasets/...."""
        _, owner, name, kind, revision, *rest = asked.path.removeprefix("/api").strip("/").split("/")
        if owner == "lost":
            asked.environ["werkzeug.socket"].shutdown(SHUT_RDWR)
            raise ConnectionError
        found = self.sets.get(f"{owner}/{name}")
        if found is None:
            return missing("RepoNotFound")
        commit = list(found)[-1] if revision == "main" else revision
        if commit not in found:
            return missing("RevisionNotFound")
        files = found[commit]
        if kind == "revision":
            return Answer(body={"id": f"{owner}/{name}", "sha": commit, "siblings": []})
        digests = {file: hashlib.sha1(content).hexdigest() for file, content in files.items()}
        if kind == "tree":
            sizes = [{"type": "file", "path": one, "size": len(files[one]), "oid": digests[one]} for one in files]
            return Answer(body=sizes)
        if (file := "/".join(rest)) not in files:
            return missing("EntryNotFound")
        return Answer(body=files[file], headers={"X-Repo-Commit": commit, "ETag": f'"{digests[file]}"'})


def missing(code: str) -> Answer:
    return Answer(404, {}, {"X-Error-Code": code})


def ask(address: str, cache: Path, monkeypatch: pytest.MonkeyPatch, offline: bool = False) -> None:
    """Make the hub's library ask a server; it reads its variables only when it is imported."""
    monkeypatch.setattr(constants, "ENDPOINT", address)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", address + "/{repo_id}/resolve/{revision}/{filename}")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", offline)
