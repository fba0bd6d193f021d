"""A store on S3 beside plain boto3 transfers: seconds and memory, on one server, in turn.

    python -m tools.benchmarks.storage [--page docs/storage.md] [--only artifacts] [--shards 300] [--repeats 2]

Ours writes artifacts (digests, data, manifest) and reads them into an empty local copy, every digest checked; boto3
uploads and downloads the same objects with its own transfer manager and checks nothing. Every measurement is a process
of its own, whose clock starts after imports and the first connection. Shards are also measured on an S3 server of
compiled code where ``rclone`` is. The last table is the check of a whole artifact on the disk beside
sha256sum.
"""

import argparse
import json
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil
from rich.table import Table

from tasks.report.tables import render_markdown
from tools.s3 import S3, rclone, rclone_version, server

PAGE = """# Storage

How fast is a store on S3, compared with plain boto3?
`python -m tools.benchmarks.storage --repeats {repeats} --page docs/storage.md` wrote this page on {machine}.

The S3 server runs on the same machine and shares its cores. Both sides transfer in turn, {repeats} times, and the
tables have medians. Ours is the store, which computes and checks digests and writes manifests. boto3 transfers ten
files at the same time and checks nothing.

An artifact of one file is two objects: the file and its manifest. boto3 transfers as many objects, each file and a
second object of 1.5 KB. `boto3-data` uploads only the files, with half the requests. *Of boto3's* is the speed as a
multiple of that of boto3. *CPU s* and *server's* are the CPU seconds of the client and of the server during the
transfer; *peak MiB* is the largest memory of the client.

In a run, a separate step writes each shard. moto is written in Python and closes the connection after every request;
{native}.

"""
PARTS = ("checkpoint", "shards", "artifacts", "digests")
MEBIBYTE = 2**20
MANIFEST_BYTES = 1500
AT_ONCE = 10
"""Files, as boto3's own command line does; also writers of artifacts."""
Work = Callable[[], object]
"""The part that is timed; imports and connections are made before."""
SERVER_PID = "STORAGE_BENCHMARK_SERVER_PID"


def fill(folder: Path, files: int, mebibytes: int) -> None:
    """Files that no server can compress or recognise, flushed to the disk."""
    folder.mkdir(parents=True)
    block = os.urandom(MEBIBYTE)
    for number in range(files):
        with (folder / f"{number:04d}.bin").open("wb") as file:
            for part in range(mebibytes):
                file.write(number.to_bytes(4, "big") + part.to_bytes(4, "big") + block[8:])
    os.sync()


def ours_up(address: str, folder: Path, split: bool) -> Work:
    """One artifact of all files, or an artifact of each."""
    from tasks.store import Store

    store = Store.open(address)
    files = sorted(folder.iterdir())

    def write(group: list[Path]) -> str:
        with store.write("rollouts", settings={}, parents={}, seed=0) as draft:
            for file in group:
                os.link(file, draft.path / file.name)
        return str(draft.ref.digest)

    def work() -> None:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            made = list(pool.map(write, [[file] for file in files] if split else [files]))
        folder.with_name("digests.json").write_text(json.dumps(made))

    return work


def ours_down(address: str, folder: Path, split: bool) -> Work:
    """Read the artifacts that were written: a step is handed their digests."""
    from tasks.store import ArtifactRef, Store

    store = Store.open(address)
    made = json.loads(folder.with_name("digests.json").read_text())
    return lambda: store.paths([ArtifactRef(kind="rollouts", digest=digest) for digest in made])


def boto3_up(address: str, folder: Path, split: bool) -> Work:
    """The files; for artifacts of one file, as many objects as those have."""
    client, bucket, prefix = _client(address)

    def write(file: Path) -> None:
        client.upload_file(str(file), bucket, f"{prefix}/{file.name}")
        if split:
            client.put_object(Bucket=bucket, Key=f"{prefix}/{file.name}.json", Body=b" " * MANIFEST_BYTES)

    def work() -> None:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(write, folder.iterdir()))

    return work


def boto3_data_up(address: str, folder: Path, split: bool) -> Work:
    """The files alone."""
    return boto3_up(address, folder, split=False)


def boto3_down(address: str, folder: Path, split: bool) -> Work:
    client, bucket, prefix = _client(address)
    target = folder.with_name("downloaded")
    target.mkdir()

    def work() -> None:
        pages = client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=f"{prefix}/")
        keys = [found["Key"] for page in pages for found in page.get("Contents", [])]
        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(lambda key: client.download_file(bucket, key, str(target / Path(key).name)), keys))

    return work


def _client(address: str) -> tuple[Any, str, str]:
    import boto3

    bucket, _, prefix = address.removeprefix("s3://").partition("/")
    return boto3.client("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL"]), bucket, prefix


SIDES: dict[str, Callable[[str, Path, bool], Work]] = {
    "ours up": ours_up,
    "boto3 up": boto3_up,
    "boto3-data up": boto3_data_up,
    "ours down": ours_down,
    "boto3 down": boto3_down,
}


def measure(side: str, address: str, folder: Path, split: bool) -> None:
    """Do the work in a process of its own, and print seconds and peak memory."""
    work = SIDES[side](address, folder, split)
    server = psutil.Process(int(os.environ[SERVER_PID]))
    start, busy, server_busy = time.perf_counter(), time.process_time(), sum(server.cpu_times()[:2])
    work()
    seconds, busy = time.perf_counter() - start, time.process_time() - busy
    server_busy = sum(server.cpu_times()[:2]) - server_busy
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"seconds": seconds, "cpu": busy, "server_cpu": server_busy, "peak_mebibytes": peak}))


def compare(s3: S3, folder: Path, split: bool, repeats: int) -> Table:
    """Both sides in turn; medians, and the throughput of ours over that of boto3."""
    place, size = folder.parent, sum(file.stat().st_size for file in folder.iterdir()) / MEBIBYTE
    sides = [side for side in SIDES if split or side != "boto3-data up"]
    found: dict[str, list[dict[str, float]]] = {side: [] for side in sides}
    for repeat in range(repeats):
        bucket = s3.bucket()
        for side in sides:
            cache = place / "cache"
            shutil.rmtree(cache, ignore_errors=True)
            shutil.rmtree(folder.with_name("downloaded"), ignore_errors=True)
            command = [sys.executable, "-m", "tools.benchmarks.storage", "--side", side]
            command += ["--address", f"s3://{bucket}/{side.split()[0]}", "--folder", str(folder)]
            command += ["--split"] if split else []
            environment = {**os.environ, **s3.environment(cache), SERVER_PID: str(s3.pid)}
            done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
            found[side].append(json.loads(done.stdout.splitlines()[-1]))
            print(f"{folder.name}, {repeat + 1}/{repeats}, {side}: {found[side][-1]}", file=sys.stderr)
        s3.delete_objects(bucket)
    return tabulated(found, size)


def tabulated(found: Mapping[str, list[dict[str, float]]], size: float) -> Table:
    """Medians of every side's runs over so many MiB; ours beside boto3, and beside what sends the files alone."""
    seconds = {side: statistics.median(run["seconds"] for run in runs) for side, runs in found.items()}
    table = Table("", "seconds", "range", "MiB/s", "of boto3's", "of boto3-data's", "CPU s", "server's", "peak MiB")
    for side, runs in found.items():
        who, way = side.split()
        beside = [f"{other} {way}" for other in ("boto3", "boto3-data")]
        table.add_row(
            side,
            f"{seconds[side]:.1f}",
            f"{min(run['seconds'] for run in runs):.1f} to {max(run['seconds'] for run in runs):.1f}",
            f"{size / seconds[side]:.0f}",
            *(f"{seconds[one] / seconds[side]:.2f}" if who == "ours" and one in seconds else "" for one in beside),
            f"{statistics.median(run['cpu'] for run in runs):.1f}",
            f"{statistics.median(run['server_cpu'] for run in runs):.1f}",
            f"{max(run['peak_mebibytes'] for run in runs):.0f}",
        )
    return table


def digests(folder: Path, repeats: int) -> Table:
    """The check of an artifact's files beside sha256sum over the same files."""
    from tasks.store.files import check, entries

    files, names = entries(folder), sorted(str(path) for path in folder.iterdir())
    found: dict[str, list[float]] = {"sha256sum": [], "ours": []}
    for _ in range(repeats):
        start = time.perf_counter()
        subprocess.run(["sha256sum", *names], check=True, stdout=subprocess.DEVNULL)
        found["sha256sum"].append(time.perf_counter() - start)
        start = time.perf_counter()
        check(folder, files)
        found["ours"].append(time.perf_counter() - start)
    table = Table("", "seconds", "of sha256sum's speed")
    plain = statistics.median(found["sha256sum"])
    for name, seconds in found.items():
        table.add_row(name, f"{statistics.median(seconds):.2f}", f"{plain / statistics.median(seconds):.2f}")
    return table


def all_tables(place: Path, parts: Sequence[str], shards: int, repeats: int) -> dict[str, Table]:
    """The tables by their titles."""
    tables: dict[str, Table] = {}
    large, small = place / "8 x 256 MiB", place / f"{shards} x 1 MiB"
    if {"checkpoint", "digests"} & set(parts):
        fill(large, 8, 256)
    fill(small, shards, 1)
    with server() as s3:
        if "checkpoint" in parts:
            tables["A checkpoint: 8 files of 256 MiB, moto"] = compare(s3, large, False, repeats)
        tables |= of_shards(s3, "moto", small, parts, repeats)
    if rclone_version():
        with rclone(place / "served") as s3:
            tables |= of_shards(s3, "rclone", small, parts, repeats)
    else:
        print("no table on a native server: no rclone", file=sys.stderr)
    if "digests" in parts:
        tables["Verifying digests of 2 GiB on the disk"] = digests(large, repeats)
    return tables


def of_shards(s3: S3, name: str, folder: Path, parts: Sequence[str], repeats: int) -> dict[str, Table]:
    """The tables of rollout shards on one server, by their titles."""
    tables, count = {}, f"{len(list(folder.iterdir())):,}"
    if "shards" in parts:
        title = f"Rollout shards: {count} files of 1 MiB, {name}"
        tables[title] = compare(s3, folder, False, repeats)
    if "artifacts" in parts:
        title = f"Rollout shards: {count} files of 1 MiB, each an artifact with a manifest, {name}"
        tables[title] = compare(s3, folder, True, repeats)
    return tables


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--page", type=Path, help="a Markdown file to write the tables to")
    parser.add_argument("--only", choices=PARTS, nargs="+", help="of the tables")
    parser.add_argument("--shards", type=int, default=2000, help="rollout shards, of 1 MiB each")
    parser.add_argument("--side", choices=SIDES)
    parser.add_argument("--address")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--split", action="store_true")
    options = parser.parse_args()
    if options.side:
        measure(options.side, options.address, options.folder, options.split)
        return
    with tempfile.TemporaryDirectory() as name:
        tables = all_tables(Path(name), options.only or PARTS, options.shards, options.repeats)
    sections = [f"## {title}\n\n{render_markdown(table)}\n" for title, table in tables.items()]
    print("\n".join(sections))
    if options.page:
        versions = ", ".join(f"{name} {version(name)}" for name in ("boto3", "s3fs", "moto"))
        machine = f"{os.cpu_count()} cores, Python {platform.python_version()}, {versions}"
        found = rclone_version()
        native = f"{found} is compiled and keeps connections" if found else "no compiled server was measured"
        options.page.write_text(
            PAGE.format(repeats=options.repeats, machine=machine, native=native) + "\n".join(sections)
        )
        print(f"wrote {options.page}")


if __name__ == "__main__":
    main()
