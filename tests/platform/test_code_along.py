"""``pyflyte run --remote`` brings code along: all of it is what a task runs, and a part of it is refused.

Driven from the form that is registered then, with the archive that is uploaded, as processes of their own.
"""

import io
import os
import subprocess
import sys
import tarfile
from datetime import UTC, datetime
from pathlib import Path

import pytest
from flyteidl.core import literals_pb2
from flytekit import FlyteContextManager
from flytekit.core.type_engine import TypeEngine

from tasks.flyte.ends import seed_of_week
from tests.platform.propeller import Attempt, Propeller
from tools.s3 import S3
from tools.serialised import Serialised, serialise

pytestmark = pytest.mark.long
SOURCE = "tasks/flyte/ends.py"
PACKAGED, RUN = "/root", "."
"""Where ``pyflyte package`` and ``pyflyte run`` have the code put; the latter is the images' working directory."""


def registered(copy: str, folder: Path) -> tuple[Serialised, bytes]:
    """What is registered, and the archive of the code."""
    deployment = folder / "deployment.yaml"
    deployment.write_text("{}")
    found = serialise(folder, deployment, "workflows.weekly", copy)
    (archive,) = found.code.values()
    return found, archive


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Serialised, bytes]:
    """With all of the code."""
    return registered("all", tmp_path_factory.mktemp("package"))


def changed(archive: bytes, before: bytes, after: bytes) -> bytes:
    """The archive with another text in one of its files."""
    made, found = io.BytesIO(), 0
    with tarfile.open(fileobj=io.BytesIO(archive)) as old, tarfile.open(fileobj=made, mode="w:gz") as new:
        for member in old:
            file = old.extractfile(member)
            content = file.read() if file else b""
            if member.name == SOURCE:
                found += content.count(before)
                content = content.replace(before, after)
            member.size = len(content)
            new.addfile(member, io.BytesIO(content))
    assert found == 1
    return made.getvalue()


def seed(found: Serialised, archive: bytes, s3: S3, folder: Path) -> int:
    """What the task says that is the seed of a week, from its registered command line."""
    bucket = s3.bucket()
    s3.client().put_object(Bucket=bucket, Key="code.tar.gz", Body=archive)
    filled = {"{{ .remote_package_path }}": f"s3://{bucket}/code.tar.gz", PACKAGED: RUN}

    def start(attempt: Attempt) -> str:
        place = folder / f"pod-{attempt.number}"
        place.mkdir()
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        own = {"PATH": path, "HOME": str(place)}
        done = subprocess.run(
            [filled.get(argument, argument) for argument in attempt.arguments],
            cwd=place,
            env={**own, **s3.environment(place / "cache"), **attempt.environment},
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout + done.stderr

    context = FlyteContextManager.current_context()
    given = {"kickoff": datetime(2026, 11, 22, tzinfo=UTC)}
    inputs = TypeEngine.dict_to_literal_map(context, given, seed_of_week.python_interface.inputs).to_flyte_idl()
    made = Propeller(found, s3, bucket, start).task(seed_of_week.name, dict(inputs.literals), "seed")
    literal: literals_pb2.Literal = made["o0"]
    return int(literal.scalar.primitive.integer)


def test_all_of_the_code_runs(whole: tuple[Serialised, bytes], s3: S3, tmp_path: Path) -> None:
    assert seed(*whole, s3, tmp_path) == 202647


def test_it_is_the_code_that_came_along_that_is_looked_at(
    whole: tuple[Serialised, bytes], s3: S3, tmp_path: Path
) -> None:
    found, archive = whole
    other = changed(archive, b"return 100 * year + week", b"return 100 * year")
    with pytest.raises(AssertionError, match="the task was registered from code"):
        seed(found, other, s3, tmp_path)


def test_a_part_of_the_code_is_refused_with_the_fix(s3: S3, tmp_path: Path) -> None:
    """What ``pyflyte run --remote`` copies unless it is told otherwise: the modules that are loaded here."""
    (tmp_path / "package").mkdir()
    found, archive = registered("auto", tmp_path / "package")
    with pytest.raises(AssertionError, match=r"the task was registered from code .*--copy all"):
        seed(found, archive, s3, tmp_path)
