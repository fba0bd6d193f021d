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
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
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
    """Data sets, by their names."""

    def __init__(self) -> None:
        super().__init__()
        self.sets: dict[str, Commits] = {}

    def answer(self, asked: Request) -> Answer:
        """About /api/datasets/OWNER/NAME/ there are revision/REVISION and tree/REVISION; files are at /datasets/...."""
        _, owner, name, kind, revision, *rest = asked.path.removeprefix("/api").strip("/").split("/")
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


def prepared(address: str, store: Path, *settings: dict[str, Any], offline: bool = False) -> list[dict[str, Any]]:
    """What came of preparing benchmarks: facts of their manifests, or the message of an error."""
    environment = {"HF_ENDPOINT": address, "HF_HUB_OFFLINE": str(int(offline)), "HF_HOME": str(store.parent / "hf")}
    command = [sys.executable, "-m", "tests.data.hub", str(store), *map(json.dumps, settings)]
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def main() -> None:
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
