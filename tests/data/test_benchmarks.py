"""Benchmarks: from the hub, from mirrors, from files and made here; read, or refused with a reason."""

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tasks.data.benchmarks import source_rows, write_prompts
from tasks.data.files import read_rows
from tasks.data.sources import policy_fingerprint, source_files, source_fingerprint
from tasks.errors import DataError, SettingsError
from tasks.settings import EvaluateSettings, PolicySettings, PromptsSettings, SourceSettings, VerifySettings
from tasks.settings.evaluate import measurements
from tasks.store import Store
from tasks.store.records import Manifest
from tasks.store.tables import read_table
from tests.data.hub import Hub, ask, lines, parquet
from tests.prepared import prepare_measured
from tools.s3 import S3

PROMPTS = PromptsSettings(path="unused.jsonl", prompts_per_stage=1, template="Q: {prompt}", chat=True)
PAPER = ["amc23", "amc24", "aime24", "aime25", "math500"]
FIRST, SECOND = "1" * 40, "2" * 40
SET: dict[str, Any] = {"name": "mine", "source": {"hub": "some/set", "files": ["data/test.jsonl"], "prompt": "q"}}
ROWS = [{"q": f"What is {number}+1?", "answer": f"${number + 1}$"} for number in range(4)]


def prepare(store: Store, mirror: str | None = None, **benchmark: Any) -> list[dict]:
    ref = prepare_measured(store, PROMPTS, mirror, benchmarks=[benchmark])
    return read_table(store.path(ref) / "prompts.parquet").to_pylist()


def put(place: Path, content: bytes) -> None:
    place.parent.mkdir(parents=True)
    place.write_bytes(content)


def from_hub(store: Store, **source: Any) -> Manifest:
    """The benchmark SET with some other fields of its source."""
    benchmark = {**SET, "source": {**SET["source"], **source}}
    return store.manifest(prepare_measured(store, PROMPTS, benchmarks=[benchmark]))


@pytest.fixture
def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with Hub() as server:
        ask(server.url, tmp_path / "hf", monkeypatch)
        yield server


def test_the_five_of_the_paper_and_how_often_they_are_sampled() -> None:
    evaluate = EvaluateSettings.parse({"max_new_tokens": 8, "benchmarks": PAPER, "samples_per_problem": 2})
    found = measurements(evaluate, PROMPTS, VerifySettings(), None)
    sizes = [(one.benchmark.problems, one.evaluation.samples_per_problem) for one in found]
    assert sizes == [(40, 32), (45, 32), (30, 32), (30, 32), (500, 4)]
    assert {(one.benchmark.template, one.benchmark.chat) for one in found} == {("Q: {prompt}", True)}
    assert not any(one.evaluation.greedy for one in found)


@pytest.mark.parametrize(
    ("benchmarks", "message"),
    [
        (["aime23"], "evaluate.benchmarks.0: got 'aime23'; .* without source: no benchmark is known .* math500"),
        (["aime24", {"name": "aime24", "problems": 2}], "aime24 is given twice"),
        ([{"name": "a", "source": {"hub": "a/b"}}], "source: hub 'a/b' without files"),
        ([{"name": "a", "source": {"path": "p.jsonl", "revision": "v1"}}], "source: revision without hub"),
        ([{"name": "a", "source": {"path": "p.jsonl", "arithmetic": {}}}], "path and arithmetic given"),
        ([{"name": "a", "source": {"hub": "a/b", "files": ["f"], "commit": "12"}}], "commit '12'; allowed: 40 hex"),
        ([{"name": "a/b", "source": {"path": "p.jsonl"}}], "benchmarks.0.name: got 'a/b'"),
        ([], "benchmarks: got"),
    ],
)
def test_a_mistake_names_the_benchmark(benchmarks: list[Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        EvaluateSettings.parse({"max_new_tokens": 8, "benchmarks": benchmarks})


def test_from_the_hub_with_the_commit_that_a_branch_names(
    running: Hub, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running.sets["some/set"] = {FIRST: {"data/test.jsonl": lines(ROWS), "b.jsonl": lines(ROWS[:2]), "README.md": b""}}
    found = from_hub(store)
    assert (found.facts["data"]["commit"], found.facts["data"]["revision"]) == (FIRST, "main")
    assert (found.facts["prompts"], found.facts["unreadable"]) == (4, [])
    (store.root / "prompts/0123456789abcdef").mkdir()
    (store.root / "prompts/0123456789abcdef/manifest.json").touch()  # Another artifact is damaged.
    assert from_hub(store) == found
    assert from_hub(store, files=["b.jsonl"]).facts["prompts"] == 2
    first, *_ = read_table(store.path(found.ref) / "prompts.parquet").to_pylist()
    assert (first["prompt"], first["answer"], first["chat"]) == ("Q: What is 0+1?", "1", True)
    assert not [one.path for one in running.asked if "README" in one.path]

    running.sets["some/set"][SECOND] = {"data/test.jsonl": lines(ROWS[::-1])}
    with pytest.raises(DataError, match=r"mine.source: some/set changed under its revision main: .*1{40}.*2{40}"):
        from_hub(store)
    assert policy_fingerprint(PolicySettings(path="some/set")) == SECOND
    second = from_hub(store, revision=SECOND)
    assert from_hub(store, revision=FIRST).digest == found.digest != second.digest
    opened = SourceSettings.parse(SET["source"]).model_copy(update={"commit": FIRST})  # before the branch moved
    (first, *_), *_ = source_rows(store, opened, "again", "", None, "function")  # which keeps dollar signs
    assert (second.facts["data"]["commit"], first["prompt"]) == (SECOND, ROWS[0]["q"])

    ask("http://127.0.0.1:9", tmp_path / "hf", monkeypatch, offline=True)
    assert from_hub(store, revision=FIRST).digest == found.digest

    put(tmp_path / "mirror/some/set/data/test.jsonl", lines(ROWS[:3]))
    with pytest.raises(DataError, match=f"some/set changed under its revision {FIRST}"):  # which main named
        prepare(store, str(tmp_path / "mirror"), **{**SET, "source": {**SET["source"], "revision": FIRST}})


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ({"files": ["none.jsonl"]}, "benchmarks, mine.source: some/set has no file 'none.jsonl' at revision main"),
        ({"revision": "v2"}, "'some/set' at revision v2 is not a folder here and could not be fetched"),
        ({"hub": "no/set"}, "'no/set'"),
        ({"hub": "lost/set"}, "'lost/set' at revision main .* could not be fetched(?s:.*)or remove lost/set from the "),
    ],
)
def test_missing_data_sets_files_and_revisions_are_named(
    running: Hub, store: Store, source: dict[str, Any], message: str
) -> None:
    running.sets["some/set"] = {FIRST: {"data/test.jsonl": lines(ROWS)}}
    with pytest.raises(DataError, match=message) as caught:
        from_hub(store, **source)
    assert caught.value.recoverable == ("files" not in source), "the hub may answer the next attempt"


def test_a_mirror_takes_the_place_of_the_hub(store: Store, tmp_path: Path, bucket: str, s3: S3) -> None:
    pinned = {"name": "mine", "source": {**SET["source"], "revision": FIRST}}
    place = tmp_path / "mirror/some/set/data/test.jsonl"
    with pytest.raises(DataError, match=rf"source: the mirror has no {place}. Copy it there from some/set"):
        prepare(store, str(tmp_path / "mirror"), **pinned)
    put(place, lines(ROWS))
    s3.put(f"{bucket}/copy/some/set/data/test.jsonl", place.read_bytes())
    assert prepare(store, str(tmp_path / "mirror"), **pinned) == prepare(store, f"{bucket}/copy", **pinned)
    assert len(prepare(store, str(tmp_path / "mirror"), **SET)) == 4  # The hub is not asked what a branch names.
    source = SourceSettings.parse(pinned["source"])
    before = source_fingerprint(source, str(tmp_path / "mirror"))
    os.utime(place, (0, 0))  # The pods of a run may have copies with other times.
    assert source_fingerprint(source, str(tmp_path / "mirror")) == before
    for changed in (ROWS[:3], [{**row, "level": 2} for row in ROWS]):
        place.write_bytes(lines(changed))
        assert source_fingerprint(source, str(tmp_path / "mirror")) != before
        with pytest.raises(DataError, match=rf"some/set changed under its revision {FIRST}"):
            prepare(store, str(tmp_path / "mirror"), **pinned)


@pytest.mark.parametrize(
    ("name", "rows", "answers"),
    [
        ("gsm8k", [{"question": "q", "answer": "48/2 = 24.\n#### 1,024"}], ["1024"]),
        ("gsm8k", [{"question": "q", "answer": "#### (1, 2,345,678)"}], ["(1, 2345678)"]),
        ("aime24", [{"problem": "p", "solution": "\\boxed{204}", "id": 60}], ["204"]),
        ("olympiadbench", [{"question": "q", "final_answer": ["$\\frac{1}{2}$"]}], ["\\frac{1}{2}"]),
        ("olympiadbench", [{"question": "q", "final_answer": ["2", "$3$"]}], ["2, 3"]),
        ("amc23", [{"question": "q", "answer": "27.0"}], ["27.0"]),
        ("amc23", [{"question": "q", "answer": r'["\\frac{1}{2}", "$1,000$"]'}], [r"\frac{1}{2}, 1,000"]),
        ("amc23", [{"question": "q", "answer": '["A", no JSON]'}], ['["A", no JSON]']),
        ("amc23", [{"question": "q", "answer": r" $\$5\$$ "}], [r"\$5\$"]),
        ("olympiadbench", [{"question": "q", "final_answer": [r"5 \$", "$ 3 $"]}], [r"5 \$, 3"]),
    ],
)
def test_gold_answers_as_each_data_set_writes_them(tmp_path: Path, name: str, rows: list[dict], answers: list[str]):
    (benchmark,) = EvaluateSettings.parse({"max_new_tokens": 8, "benchmarks": [name]}).benchmarks
    source = benchmark.source
    put(tmp_path / str(source.hub) / source.files[0], parquet(rows))
    with source_files(source, "here", str(tmp_path)) as files:
        read, unusable = read_rows(files, source, "math")
    assert [row["answer"] for row in read] == answers
    assert unusable == []


def test_a_benchmark_with_an_id_and_a_level_keeps_them(store: Store, tmp_path: Path) -> None:
    rows = [{"problem": "p", "answer": "1", "unique_id": "test/algebra/1.json", "level": 3}]
    put(tmp_path / "HuggingFaceH4/MATH-500/test.jsonl", lines(rows))
    (row,) = prepare(store, str(tmp_path), name="math500", problems=1)
    assert (row["prompt_id"], row["level"]) == ("test/algebra/1.json", 3)
    with pytest.raises(DataError, match=r"evaluate.benchmarks, math500.problems: 500, but the source has 1"):
        prepare(store, str(tmp_path), name="math500")


def test_long_tests_of_programs_are_not_in_memory_twice(tmp_path: Path) -> None:
    pool = pa.proxy_memory_pool(default := pa.default_memory_pool())
    same = {"prompt": "p", "answer": "1" * 2**25, "level": None, "chat": False, "problem": "p"}
    rows = [{"prompt_id": str(place), **same} for place in range(8)]
    pa.set_memory_pool(pool)
    write_prompts(tmp_path, rows)
    pa.set_memory_pool(default)
    assert pool.max_memory() < 150 * 2**20  # The answers are 256 MiB.
    assert read_table(tmp_path / "prompts.parquet").to_pylist() == rows


def test_a_folder_and_an_array_of_json(store: Store, tmp_path: Path, capsys) -> None:
    place = tmp_path / "set.parquet"  # Spark gives folders such names.
    (place / "c.jsonl").mkdir(parents=True)
    (place / "b.json").write_text(json.dumps([{"prompt": "b", "answer": 2}]))
    (place / "a.parquet").write_bytes(parquet([{"prompt": "a", "answer": "1", "solution": "long"}]))
    for other in ("notes.txt", "c.jsonl.gz", "README.md", ".hidden.csv", "._b.json"):
        (place / other).write_text("not read")
    rows = prepare(store, name="mine", source={"path": str(place)})
    assert "/set.parquet is read without c.jsonl.gz, notes.txt; allowed: .jsonl" in capsys.readouterr().out
    assert [(row["prompt"], row["answer"]) for row in rows] == [("Q: a", "1"), ("Q: b", "2")]
    for split in ("train-00000-of-00001.parquet", "val.jsonl", "latest_dev-1.json"):
        (place / split).touch()
    with pytest.raises(DataError, match=r"mine.source: .*/set.* has files of several splits: dev, train, val. "):
        prepare(store, name="mine", source={"path": str(place)})


def test_a_benchmark_without_problems_or_with_an_unusable_row_is_refused(store: Store, tmp_path: Path) -> None:
    (tmp_path / "mine.jsonl").write_bytes(lines([{"prompt": "p", "answer": "1"}]))
    for source in (
        {"path": str(tmp_path / "mine.jsonl"), "share": 0.01},
        {"arithmetic": {"levels": [1], "held_out_share": 1e-9}},
    ):
        with pytest.raises(DataError, match=r"evaluate.benchmarks, mine: its source has no problems. To fix it: raise"):
            prepare(store, name="mine", source=source)
    (tmp_path / "mine.jsonl").write_bytes(lines([{"prompt": "p", "answer": "1"}, *[{"prompt": "p", "answer": ""}] * 2]))
    with pytest.raises(DataError, match=r"mine.jsonl, line 2: answer is empty.* 1 other rows cannot be used either"):
        prepare(store, name="mine", source={"path": str(tmp_path / "mine.jsonl")})
    assert store.manifests("prompts") == []


def test_gold_answers_that_the_verifier_cannot_read_are_listed(store: Store, tmp_path: Path, capsys) -> None:
    rows = [{"prompt_id": str(number), "prompt": f"p{number}", "answer": str(number)} for number in range(20)]
    rows[7]["answer"] = "\\ldots"
    (tmp_path / "mine.jsonl").write_bytes(lines(rows))
    settings = {"name": "mine", "source": {"path": str(tmp_path / "mine.jsonl")}}
    assert len(prepare(store, **settings)) == 20
    (manifest,) = store.manifests("prompts")
    assert manifest.facts["unreadable"] == ["7"]
    told = f"1 of 20 gold answers cannot be read by the verifier: 7 ({rows[7]['answer']!r})"
    assert f"{told}; their problems count as not solved" in capsys.readouterr().out
    message = rf"mine: {re.escape(told)}. To fix it: .*docs/verifying.md.* raise its max_unreadable_share \(0.04"
    with pytest.raises(DataError, match=message):
        prepare(store, max_unreadable_share=0.04, **settings)
