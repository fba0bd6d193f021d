"""Seconds and memory of a store on S3 and of plain boto3 transfers.

    python -m tools.benchmarks.storage [--page docs/storage.md] [--only artifacts] [--shards 300] [--repeats 2]

The store writes artifacts (digests, data, manifest), and reads them into an empty local copy with a check of every
digest. boto3 uploads and downloads the same objects with its own transfer manager and checks nothing. Every measurement
has its own process, whose clock starts after imports and the first connection. If ``rclone`` is installed, shards are
also measured on its S3 server, which is compiled. The last table compares the check of digests on the disk with
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

from tools.docs.sections import render_markdown
from tools.s3 import S3, rclone, rclone_version, server

PAGE = """# Storage

How fast is a store on S3, compared with plain boto3?
`python -m tools.benchmarks.storage --repeats {repeats} --page docs/storage.md` wrote this page on {machine}.

The S3 server runs on the same machine and shares its cores. Everything was measured {repeats} times; every repeat
measures each row once. The tables have medians. *Ours* is the store, which computes and checks digests and writes
manifests. boto3 transfers ten files at the same time and checks nothing.

An artifact of one file is two objects: the file and its manifest. For every such artifact, boto3 also transfers two
objects: the file and an object of 1.5 KB. `boto3-data` uploads only the files, with half of the requests. *speed /
boto3* is the speed divided by the speed of boto3. *CPU s* and *server CPU s* are the CPU seconds of the client and of
the server during the transfer; *peak MiB* is the largest memory of the client.

In a run, a separate step writes each shard. moto is written in Python and closes the connection after every request;
{compiled_server}.

"""
PARTS = ("checkpoint", "shards", "artifacts", "digests")
MEBIBYTE = 2**20
MANIFEST_BYTES = 1500
AT_ONCE = 10
"""Number of parallel transfers of files, as in the command line of boto3, and of parallel writers of artifacts."""
Work = Callable[[], object]
"""A transfer, which is timed; imports and the first connection are made before."""
SERVER_PID = "STORAGE_BENCHMARK_SERVER_PID"


def fill(folder: Path, files: int, mebibytes: int) -> None:
    """Write files that no server can compress or deduplicate, and flush them to the disk."""
    folder.mkdir(parents=True)
    block = os.urandom(MEBIBYTE)
    for number in range(files):
        with (folder / f"{number:04d}.bin").open("wb") as file:
            for part in range(mebibytes):
                file.write(number.to_bytes(4, "big") + part.to_bytes(4, "big") + block[8:])
    os.sync()


def ours_up(address: str, folder: Path, split: bool) -> Work:
    """Return the write of one artifact with all files, or with ``split`` of an artifact per file."""
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
            digests = list(pool.map(write, [[file] for file in files] if split else [files]))
        folder.with_name("digests.json").write_text(json.dumps(digests))

    return work


def ours_down(address: str, folder: Path, split: bool) -> Work:
    """Return the read of the artifacts that ``ours_up`` wrote. Their digests are known, as in a step."""
    from tasks.store import ArtifactRef, Store

    store = Store.open(address)
    digests = json.loads(folder.with_name("digests.json").read_text())
    return lambda: store.paths([ArtifactRef(kind="rollouts", digest=digest) for digest in digests])


def boto3_up(address: str, folder: Path, split: bool) -> Work:
    """Return the upload of the files, with ``split`` of a second object per file, in place of a manifest."""
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
    """Return the upload of the files alone."""
    return boto3_up(address, folder, split=False)


def boto3_down(address: str, folder: Path, split: bool) -> Work:
    """Return the download of all objects."""
    client, bucket, prefix = _client(address)
    target = folder.with_name("downloaded")
    target.mkdir()

    def work() -> None:
        pages = client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=f"{prefix}/")
        keys = [item["Key"] for page in pages for item in page.get("Contents", [])]
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
    """Make a transfer in this process, and print its seconds and peak memory."""
    work = SIDES[side](address, folder, split)
    server = psutil.Process(int(os.environ[SERVER_PID]))
    start, busy, server_busy = time.perf_counter(), time.process_time(), sum(server.cpu_times()[:2])
    work()
    seconds, busy = time.perf_counter() - start, time.process_time() - busy
    server_busy = sum(server.cpu_times()[:2]) - server_busy
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"seconds": seconds, "cpu": busy, "server_cpu": server_busy, "peak_mebibytes": peak}))


def compare(s3: S3, folder: Path, split: bool, repeats: int) -> Table:
    """Measure the transfers of a folder by both sides, and return a table."""
    place, size = folder.parent, sum(file.stat().st_size for file in folder.iterdir()) / MEBIBYTE
    sides = [side for side in SIDES if split or side != "boto3-data up"]
    results: dict[str, list[dict[str, float]]] = {side: [] for side in sides}
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
            results[side].append(json.loads(done.stdout.splitlines()[-1]))
            print(f"{folder.name}, {repeat + 1}/{repeats}, {side}: {results[side][-1]}", file=sys.stderr)
        s3.delete_objects(bucket)
    return transfer_table(results, size)


def transfer_table(results: Mapping[str, list[dict[str, float]]], size: float) -> Table:
    """Return a table of medians by side, for transfers of ``size`` MiB."""
    seconds = {side: statistics.median(run["seconds"] for run in runs) for side, runs in results.items()}
    headings = ("seconds", "range", "MiB/s", "speed / boto3", "speed / boto3-data", "CPU s", "server CPU s", "peak MiB")
    table = Table("", *headings)
    for side, runs in results.items():
        who, direction = side.split()
        others = [f"{other} {direction}" for other in ("boto3", "boto3-data")]
        table.add_row(
            side,
            f"{seconds[side]:.1f}",
            f"{min(run['seconds'] for run in runs):.1f} to {max(run['seconds'] for run in runs):.1f}",
            f"{size / seconds[side]:.0f}",
            *(f"{seconds[one] / seconds[side]:.2f}" if who == "ours" and one in seconds else "" for one in others),
            f"{statistics.median(run['cpu'] for run in runs):.1f}",
            f"{statistics.median(run['server_cpu'] for run in runs):.1f}",
            f"{max(run['peak_mebibytes'] for run in runs):.0f}",
        )
    return table


def digests(folder: Path, repeats: int) -> Table:
    """Measure the check of the digests of files by the store and by sha256sum, and return a table."""
    from tasks.store.files import check, entries

    files, names = entries(folder), sorted(str(path) for path in folder.iterdir())
    measured: dict[str, list[float]] = {"sha256sum": [], "ours": []}
    for _ in range(repeats):
        start = time.perf_counter()
        subprocess.run(["sha256sum", *names], check=True, stdout=subprocess.DEVNULL)
        measured["sha256sum"].append(time.perf_counter() - start)
        start = time.perf_counter()
        check(folder, files)
        measured["ours"].append(time.perf_counter() - start)
    table = Table("", "seconds", "speed / sha256sum")
    medians = {name: statistics.median(seconds) for name, seconds in measured.items()}
    for name, median in medians.items():
        table.add_row(name, f"{median:.2f}", f"{medians['sha256sum'] / median:.2f}")
    return table


def all_tables(place: Path, parts: Sequence[str], shards: int, repeats: int) -> dict[str, Table]:
    """Measure parts, and return the tables by their titles."""
    tables: dict[str, Table] = {}
    large, small = place / "8 x 256 MiB", place / f"{shards} x 1 MiB"
    if {"checkpoint", "digests"} & set(parts):
        fill(large, 8, 256)
    if {"shards", "artifacts"} & set(parts):
        fill(small, shards, 1)
    with server() as s3:
        if "checkpoint" in parts:
            tables["A checkpoint: 8 files of 256 MiB, moto"] = compare(s3, large, False, repeats)
        tables |= shard_tables(s3, "moto", small, shards, parts, repeats)
    if rclone_version():
        with rclone(place / "served") as s3:
            tables |= shard_tables(s3, "rclone", small, shards, parts, repeats)
    else:
        print("no tables for a compiled server, because rclone is not installed", file=sys.stderr)
    if "digests" in parts:
        tables["Verifying digests of 2 GiB on the disk"] = digests(large, repeats)
    return tables


def shard_tables(s3: S3, name: str, folder: Path, shards: int, parts: Sequence[str], repeats: int) -> dict[str, Table]:
    """Measure rollout shards on one server, and return the tables by their titles."""
    tables, count = {}, f"{shards:,}"
    if "shards" in parts:
        title = f"Rollout shards: {count} files of 1 MiB, {name}"
        tables[title] = compare(s3, folder, False, repeats)
    if "artifacts" in parts:
        title = f"Rollout shards: {count} files of 1 MiB, each an artifact with a manifest, {name}"
        tables[title] = compare(s3, folder, True, repeats)
    return tables


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--page", type=Path, help="Markdown file to which the page is written")
    parser.add_argument("--only", choices=PARTS, nargs="+", help="parts that are measured; by default all")
    parser.add_argument("--shards", type=int, default=2000, help="number of rollout shards of 1 MiB each")
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
        rclone_name = rclone_version()
        compiled = f"{rclone_name} is compiled and keeps connections" if rclone_name else "no other server was measured"
        text = PAGE.format(repeats=options.repeats, machine=machine, compiled_server=compiled)
        options.page.write_text(text + "\n".join(sections))
        print(f"wrote {options.page}")


if __name__ == "__main__":
    main()
