"""What trackers show and are told, and how a test reads it back."""

import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from tasks import tracking
from tasks.errors import SettingsError
from tasks.flyte.uncached import open_run
from tasks.settings import RunSettings, TrackerSettings
from tasks.store import ArtifactRef, Store
from tasks.store.tables import read_table
from tests.cli.synthetic import make_finished_run
from tests.prepared import run_python
from tools import ROOT
from tools.runs import CONFIG

Shown = Counter[tuple[str, int, float]]
KEY = "b8c1" * 10


def copy_policy(base: Store, policy: ArtifactRef, store: Store) -> ArtifactRef:
    shutil.copytree(base.path(policy), store.root / policy.folder)
    return policy


def expected(store: Store, policy: ArtifactRef) -> Shown:
    rows = read_table(store.path(policy) / "metrics.parquet").to_pylist()
    return Counter(
        (f"optimize/{name}", row["update"], float(value))
        for row in rows
        for name, value in row.items()
        if isinstance(value, int | float)
    )


def in_tensorboard(folder: Path) -> Shown:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    shown: Shown = Counter()
    for file in folder.glob("events*"):
        events = EventAccumulator(str(file), size_guidance={"scalars": 0})
        events.Reload()
        for tag in events.Tags()["scalars"]:
            shown.update((tag, event.step, event.value) for event in events.Scalars(tag))
    return shown


def records_of(file: Path) -> Iterator[bytes]:
    """The records of a .wandb file: after seven bytes, LevelDB's log format in blocks of 32 KiB."""
    content, place, pieces = file.read_bytes(), 7, b""
    while place + 7 <= len(content):
        left = 32768 - place % 32768
        if left < 7:
            place += left
            continue
        length, kind = int.from_bytes(content[place + 4 : place + 6], "little"), content[place + 6]
        if place + 7 + length > len(content):
            return  # Its writer was killed.
        pieces += content[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):
            yield pieces
            pieces = b""


def messages(file: Path) -> Iterator[Any]:
    from wandb.proto import wandb_internal_pb2

    for record in records_of(file):
        message = wandb_internal_pb2.Record()
        message.ParseFromString(record)
        yield message


def in_wandb(folder: Path) -> Shown:
    shown: Shown = Counter()
    for file in folder.rglob("*.wandb"):
        for message in messages(file):
            items = {(item.key or item.nested_key[0]): item.value_json for item in message.history.item}
            if "update" in items:
                update = int(json.loads(items["update"]))
                numbers = {name: json.loads(text) for name, text in items.items() if "/" in name}
                shown.update((name, update, float(value)) for name, value in numbers.items())
    return shown


@pytest.fixture(autouse=True)
def nothing_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracking, "FLUSH_SECONDS", 0.0)
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.delenv("WANDB_MODE", raising=False)


def rounded(shown: Shown) -> Shown:
    """The numbers in single precision, as TensorBoard has them."""
    return Counter({(tag, step, float(np.float32(value))): times for (tag, step, value), times in shown.items()})


@pytest.mark.parametrize(("kind", "read"), [("tensorboard", in_tensorboard), ("wandb", in_wandb)])
def test_files_of_a_store_on_s3_hold_the_rows_of_every_attempt_once(
    bucket: str, tmp_path: Path, kind: str, read: Callable[[Path], Shown]
) -> None:
    store = Store(Store.open(bucket).ref, work="key")
    for updates in ((1,), (1, 2)):
        with tracking.open_tracker(TrackerSettings(kind=kind, run="a-run"), store, "part", {}) as show:
            for update in updates:
                show("optimize", {"update": update, "loss": 0.5})
    (copy := tmp_path / "copy").mkdir()
    for place, name in enumerate(store.remote.listing("tracking")):
        (copy / f"events-{place}-{Path(name).name}").write_bytes(store.remote.read(name) or b"")
    rows = [(("optimize/update", update, update), ("optimize/loss", update, 0.5)) for update in (1, 2)]
    assert read(copy) == Counter(chain(*rows))


def test_a_server_that_is_not_there_stops_nothing(tmp_path: Path) -> None:
    code = """
import sys
from tasks.store import Store
from tasks.settings import TrackerSettings
from tasks.tracking import open_tracker
for part in ("evaluate base", "stage 1 optimize"):
    with open_tracker(TrackerSettings(kind="wandb", run="a-run"), Store.open(sys.argv[1]), part, {}) as show:
        show("optimize", {"update": 1, "reward": 0.5})
print("went on")
"""
    away = {"WANDB_API_KEY": KEY, "WANDB_BASE_URL": "http://127.0.0.1:9", "WANDB_INIT_TIMEOUT": "1"}
    done = run_python(code, str(tmp_path / "store"), **away)
    assert "went on" in done.stdout, done.stdout + done.stderr
    assert done.stdout.count("wandb: cannot be reached") == 2
    assert KEY not in done.stdout + done.stderr


def test_a_tracker_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.errors.find_spec", lambda name: None)
    message = r"operation\.tracker\.kind: wandb is not installed here\. Install it with `pip install 'mu-grpo\[track"
    with pytest.raises(SettingsError, match=message):
        tracking.check_installed(TrackerSettings(kind="wandb"))


def test_the_id_of_a_run_follows_from_its_settings() -> None:
    file = ROOT / "configs/tiny-cpu.yaml"

    def name(overrides: str) -> str:
        return RunSettings.read(file, f"operation.tracker.kind=wandb {overrides}").named_operation().tracker.run

    assert name("").startswith("mu_grpo-mu16-seed0-")
    assert name("store=elsewhere operation.checkpoints_kept=3 verify.workers=3") == name("")
    assert name("seed=1") != name("") != name("operation.tracker.run=mine") == "mine"


def test_a_run_that_continues_a_stored_one_has_another_id(tmp_path: Path) -> None:
    types = open_run.python_interface.inputs
    sections = {name: types[name].model_validate(value) for name, value in yaml.safe_load(CONFIG.read_text()).items()}
    sections.update(operation=types["operation"](), store=str(tmp_path), seed=0, updates_per_rollout=0)

    def name(**start: object) -> str:
        return open_run(**sections, overrides="operation.tracker.kind=wandb", **start).optimize.operation.tracker.run

    settings = RunSettings.read(CONFIG).result_values()
    make_finished_run(Store.open(tmp_path), preset="mu_grpo", settings=settings)
    first = name(from_stage=2)
    make_finished_run(Store.open(tmp_path), preset="relaxed", settings=settings)
    assert name(from_stage=2, algorithm="mu_grpo") == first
    assert len({name(), first, name(from_stage=2)}) == 3
