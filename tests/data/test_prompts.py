"""Prompts: generated arithmetic is right and split cleanly; files are read or refused with a reason."""

import json
import re
from datetime import datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from tasks.data.arithmetic import CHARACTERS, PROGRAM, hash_fraction, problems, split
from tasks.data.files import read_rows
from tasks.data.sources import source_fingerprint
from tasks.data.training import prepare_training_set
from tasks.errors import DataError
from tasks.settings import ArithmeticSettings, MathVerifySettings, PromptsSettings, SourceSettings
from tasks.store import ArtifactRef, Store
from tasks.store.tables import read_table, take_rows
from tasks.verify.verdicts import extract_program
from tests.data.hub import lines, parquet
from tests.prepared import prepare_held_out, prepare_prompts, prepare_training
from tools.s3 import S3

ROW = '{"prompt": "caf\u00e9", "answer": "1"}\n'
ARITHMETIC = PromptsSettings(prompts_per_stage=100, prompts_per_shard=30, arithmetic=ArithmeticSettings(levels=[2]))


@pytest.mark.parametrize(("level", "count"), [(1, 720), (2, 5760), (3, 4096), (4, 23104)])
def test_every_answer_and_every_step_of_the_working_is_right(level: int, count: int) -> None:
    found = list(problems(level))
    assert len(found) == count == len({problem.prompt_id for problem in found})
    for problem in found[::7]:
        assert eval(problem.prompt.removesuffix("=")) == problem.answer
        for equation in problem.working.removesuffix(";").split(";"):
            left, right = equation.split("=")
            assert eval(left) == int(right)
        assert problem.solution() == f"{problem.working}\\boxed{{{problem.answer}}}"
        assert set(problem.prompt + problem.working) <= set(CHARACTERS)


def rows(store: Store, refs: list) -> list[dict]:
    return [row for ref in refs for row in read_table(store.path(ref) / "prompts.parquet").to_pylist()]


def training(store: Store, settings: PromptsSettings, *benchmarks: ArtifactRef) -> list[dict]:
    return read_table(store.path(prepare_training(store, settings, *benchmarks)) / "training.parquet").to_pylist()


def test_a_pass_takes_every_prompt_once_and_the_next_in_another_order(store: Store, tmp_path: Path) -> None:
    path = write(tmp_path, [{"prompt_id": str(i), "prompt": f"p{i}", "answer": "1"} for i in range(60)])
    settings = PromptsSettings(prompts_per_stage=20, path=str(path), held_out_share=0)
    stages = [[row["prompt_id"] for row in rows(store, prepare_prompts(store, settings, k, 0))] for k in range(6)]
    first, second = (sorted(name for stage in some for name in stage) for some in (stages[:3], stages[3:]))
    assert first == second == sorted(map(str, range(60)))
    assert stages[:3] != stages[3:]
    assert len(rows(store, prepare_prompts(store, settings.model_copy(update={"prompts_per_stage": 25}), 2, 0))) == 25
    assert take_rows(pa.table([pa.chunked_array([pa.array(["x" * 2**26])] * 33)], ["text"]), [32])  # more than 2 GiB


def test_shards_cut_a_stage_in_order(store: Store) -> None:
    shards = prepare_prompts(store, ARITHMETIC, 0, 0)
    assert [len(rows(store, [shard])) for shard in shards] == [30, 30, 30, 10]
    assert [store.manifest(shard).facts["stage"] for shard in shards] == [1] * 4
    whole = prepare_prompts(store, ARITHMETIC.model_copy(update={"prompts_per_shard": 100}), 0, 0)
    assert rows(store, shards) == rows(store, whole)
    with pytest.raises(DataError, match=r"prompts_per_stage: 9999, but there are 5\d\d\d training prompts"):
        prepare_prompts(store, ARITHMETIC.model_copy(update={"prompts_per_stage": 9999}), 0, 0)


def test_order_depends_on_the_seed_and_held_out_does_not(store: Store) -> None:
    def names(seed: int) -> list[str]:
        return [row["prompt_id"] for row in rows(store, prepare_prompts(store, ARITHMETIC, 0, seed))]

    assert names(0) == names(0) != names(1)
    held_out = rows(store, [prepare_held_out(store, ARITHMETIC, 50)])
    assert [row["prompt_id"] for row in held_out] == [p.prompt_id for p in split(ArithmeticSettings())[1][:50]]
    assert not {row["prompt_id"] for row in held_out} & {row["prompt_id"] for row in training(store, ARITHMETIC)}
    assert {one.level for one in split(ArithmeticSettings(levels=[1, 2, 3, 4]))[1][:200]} == {1, 2, 3, 4}, "not random"


def write(folder: Path, records: list, name: str = "prompts.jsonl") -> Path:
    path = folder / name
    path.write_bytes(lines(records))
    return path


def test_only_mathematics_loses_the_dollar_signs_around_it(tmp_path: Path) -> None:
    """A function of the user's gets the answer as it is in the file, which may be a regular expression."""
    path = write(tmp_path, [{"prompt": "p", "answer": " $ a $ "}, {"prompt": "q", "answer": ["a, b", "c$"]}])
    source, whole = SourceSettings(path=str(path)), [" $ a $ ", '["a, b", "c$"]']
    for kind, expected in (("math", ["a", "a, b, c"]), ("code", whole), ("function", whole)):
        assert [row["answer"] for row in read_rows([(path, "mine")], source, kind)[0]] == expected


def test_the_level_of_a_row_is_a_number_or_the_one_at_the_end_of_a_text(store: Store, tmp_path: Path) -> None:
    levels = {"Level 5": 5, "3": 3, 4: 4, 2.0: 2}
    levels |= dict.fromkeys([None, "Level ?", "hard", 2**31, True, "1" * 99, 4.5, "Level 4.5", 1e300])
    path = write(tmp_path, [{"prompt": str(one), "answer": "1", "level": one} for one in levels])
    found = training(store, PromptsSettings(prompts_per_stage=1, path=str(path), held_out_share=0))
    assert {row["prompt"]: row["level"] for row in found} == {str(one): level for one, level in levels.items()}


def test_a_file_that_changed_after_the_run_started_is_refused(store: Store, tmp_path: Path) -> None:
    path = write(tmp_path, [{"prompt": "a?", "answer": "1"}, {"prompt": "b?", "answer": "1"}])
    settings = PromptsSettings(prompts_per_stage=1, path=str(path))
    started_with = source_fingerprint(settings.rows)
    path.write_bytes(path.read_bytes().replace(b"a?", b"c?"))
    with pytest.raises(DataError, match=r"prompts\.path: the files changed after this run started"):
        prepare_training_set(store, settings.training_set, MathVerifySettings(), started_with, [])


def test_rows_of_the_held_out_file_leave_the_training_set(store: Store, tmp_path: Path) -> None:
    path = write(tmp_path, [{"q": "a?", "a": "1"}, {"q": "b?", "a": "1"}])
    other = write(tmp_path, [{"q": "B ?", "a": "1"}], "other.jsonl")
    source = {"path": str(path), "prompt": "q", "answer": "a"}
    settings = PromptsSettings.parse({"prompts_per_stage": 1, "source": source, "held_out_path": str(other)})
    held_out = prepare_held_out(store, settings, 1)
    assert [row["prompt"] for row in training(store, settings, held_out)] == ["a?"]
    write(tmp_path, [{"prompt": "B ?", "answer": "1"}], "other.jsonl")
    with pytest.raises(DataError, match=r"other\.jsonl, line 1: no field 'q'; .*Name one of these in source\.prompt"):
        prepare_held_out(store, settings, 1)


LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 12345\n"
DAMAGED = parquet([{"prompt": "abcd", "answer": "34"}]).replace(b"abcd", b"ab\xff\xff")
BAD_ROWS = [
    ("", "no prompts"),
    ('{"prompt": "a"}\n', r"line 1: no field 'answer'; found \['prompt'\]"),
    ('{"prompt": "a", "answer": "1"}\n{"answer": "1"}\n', "line 2: no field 'prompt'"),
    ('{"prompt": "a", "answer": "  "}\n', "line 1: answer is empty"),
    ('{"prompt": "a", "answer": "1"}\n' * 2, r"line 2: the same prompt as .*line 1\. Remove one of them\. 1 of 2 rows"),
    ('{"prompt_id": 7, "prompt": "a", "answer": "1"}\n' * 2, "line 2: prompt_id '7' is also that of"),
    ("[1]\n", "row 0: '1' is not an object"),
    ("{oops\n", "line 1: not JSON .*'{oops.*'. Write one JSON object in a line, or one list"),
    ("[" * 99999, "bad.jsonl: not JSON .maximum recursion"),
    ('{"prompt": "a", "answer": ' + "1" * 5000 + "}", "line 1: not JSON .Exceeds the limit"),
    ('{"prompt": "a", "answer": null}', "line 1: answer is empty or null. Fill"),
    ('{"prompt": "a", "gold": {"text": 1}}', r"no field 'answer'; found \['gold.text', 'prompt'\].*source.answer"),
    ('{"prompt": ["a"], "answer": "1"}', "line 1: prompt is .*; allowed: a text or a number"),
    ('{"prompt": [{"role": "user", "content": 1}], "answer": "1"}', "line 1: prompt has the message .*; allowed"),
    (
        '{"prompt": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}], "answer": "1"}',
        "line 1: prompt ends with a message of the assistant",
    ),
    ('{"prompt": [{"role": "system", "content": "a"}], "answer": "1"}', "line 1: prompt has no message of a user"),
    ('{"prompt": "a", "answer": NaN}', "line 1: answer is 'nan'; allowed: a text or a number"),
    ('{"prompt": "a", "answer": [null]}', "line 1: answer is 'None'"),
    (r'{"prompt": "a", "answer": "So we get $\\boxed{1}$."}', "line 1: answer is a whole solution: .* gold: boxed}"),
    ('{"prompt": "a", "answer": [["1"]]}', "line 1: answer is .*; allowed: a text or a number"),
    ('{"prompt": "a", "answer": "The answer is: 7"}', "line 1: answer is a sentence: 'The answer is: 7'"),
    ('{"prompt": "a", "answer": {"b": 1}}', r"line 1: answer is an object, .*; found \['answer.b', 'prompt'\]"),
    ('{"prompt": "\\ud800", "answer": "1"}', "line 1: .* can't encode .* surrogates not allowed"),
    (
        '{"prompt": [{"role": "user", "content": "a", "name": "\\ud800"}], "answer": "1"}',
        "line 1: .* can't encode .* surrogates not allowed",
    ),
]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        *(("bad.jsonl", text.encode(), message) for text, message in BAD_ROWS),
        ("openai/gsm8k", None, "no such file, .* A data set of the Hugging Face hub is named in source.hub"),
        ("data.csv", b"x", "cannot read .csv"),
        ("p.parquet", b"not parquet", "p.parquet: cannot be read as a parquet file"),
        pytest.param("p.parquet", DAMAGED, "p.parquet: cannot be read as a parquet file .*can't decode", id="damaged"),
        pytest.param("p.parquet", parquet([{"prompt": "a", "answer": b"34"}]), "row 0: answer is .*34", id="bytes"),
        ("p.parquet", LFS, "p.parquet: a pointer of Git LFS.*git lfs pull"),
        ("state.json", b"{}", "was made by datasets.save_to_disk"),
        *(("p.jsonl", ROW.encode(encoding), "line 1: not UTF-8 .* as UTF-8") for encoding in ("latin-1", "utf-16")),
    ],
)
def test_a_bad_file_is_refused_with_place_and_reason(
    store: Store, tmp_path: Path, name: str, content: bytes | None, message: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        training(store, PromptsSettings(prompts_per_stage=1, path=str(tmp_path / name).removesuffix("state.json")))


def test_a_file_with_other_fields_is_trained_on_as_the_message_says(store: Store, tmp_path: Path) -> None:
    path = write(tmp_path, [{"question": "a", "sum": 1}])
    with pytest.raises(DataError, match=r"no field 'prompt'.*in place of prompts\.path") as caught:
        training(store, PromptsSettings(prompts_per_stage=1, path=str(path)))
    (source,) = re.findall(r"prompts\.source='(.*?)'", caught.value.message)
    fix = source.replace("prompt: FIELD", "prompt: question").replace("answer: FIELD", "answer: sum")
    settings = PromptsSettings.parse({"prompts_per_stage": 1, "held_out_share": 0, "source": yaml.safe_load(fix)})
    assert [row["answer"] for row in training(store, settings)] == ["1"]


def test_prompts_that_come_again_under_other_ids_are_counted(store: Store, tmp_path: Path, capsys) -> None:
    path = write(tmp_path, [{"prompt_id": number, "prompt": f"p{number % 4}", "answer": "1"} for number in range(7)])
    assert len(training(store, PromptsSettings(prompts_per_stage=7, path=str(path), held_out_share=0))) == 7
    assert f"{path}: 3 rows with the prompt of another row" in capsys.readouterr().out


def test_a_byte_order_mark_is_no_part_of_a_file(store: Store, tmp_path: Path) -> None:
    for name, text in (("a.jsonl", ROW), ("b.json", f"[{ROW}]"), ("c.jsonl", f"[{ROW}]")):
        (tmp_path / name).write_text(text, encoding="utf-8-sig")
        (read,) = training(store, PromptsSettings(prompts_per_stage=1, path=str(tmp_path / name)))
        assert read["prompt"] == "caf\u00e9"


NUMBERS = {98.6: "98.6", 0.1: "0.1", 5.0: "5.0", 0.00001: "0.00001", 2.5e-7: "0.00000025", 1e16: "1" + "0" * 16}
NUMBERS |= {1.6e-19: r"1.6\times 10^{-19}", 4.5e33: r"4.5\times 10^{33}", -3e-20: r"-3\times 10^{-20}"}


@pytest.mark.parametrize("kind", ["json", "float64", "float32", "nested float32", "list_", "large_list"])
def test_a_number_is_the_shortest_decimal_of_its_type(store: Store, tmp_path: Path, kind: str) -> None:
    prompts, answers = [f"p{place}" for place in range(len(NUMBERS))], [*NUMBERS]
    column = field = "gold.answer" if kind == "float64" else "answer"
    if kind == "json":
        path = write(tmp_path, [{"prompt": one, "answer": two} for one, two in zip(prompts, answers, strict=True)])
    else:
        path, type_of = tmp_path / "p.parquet", pa.float64() if kind == "float64" else pa.float32()
        if kind == "nested float32":
            field, type_of = "answer.value", pa.struct({"value": type_of})
            answers = [{"value": answer} for answer in answers]
        elif "list" in kind:
            answers, type_of = [[answer] for answer in answers], getattr(pa, kind)(type_of)
        pq.write_table(pa.table({"prompt": prompts, column: pa.array(answers, type_of)}), path)
    source = SourceSettings(path=str(path), answer=field)
    settings = PromptsSettings(prompts_per_stage=1, held_out_share=0, source=source)
    assert [row["answer"] for row in training(store, settings)] == list(NUMBERS.values())


def test_decimals_of_a_parquet_file_have_no_exponent(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "p.parquet"
    column = pa.array([Decimal("0.0000001"), Decimal("98.60")], pa.decimal128(20, 7))
    pq.write_table(pa.table({"prompt": ["a", "b"], "answer": column}), path)
    rows = training(store, PromptsSettings(prompts_per_stage=1, held_out_share=0, path=str(path)))
    assert [Decimal(row["answer"]) for row in rows] == column.to_pylist()
    assert not any("E" in row["answer"] for row in rows)


@pytest.mark.parametrize("suffix", ["parquet", "jsonl"])
def test_rows_in_the_format_of_verl(store: Store, tmp_path: Path, suffix: str) -> None:
    system = {"role": "system", "content": "Answer in a box."}
    records = [
        {
            "data_source": "mine",
            "prompt": [*([system] if number else []), {"role": "user", "content": f"What is {number}+1?"}],
            "reward_model": {"style": "rule", "ground_truth": str(number + 1)},
            "extra_info": {"index": f"row {number}"},
        }
        for number in range(3)
    ]
    path = tmp_path / f"p.{suffix}"
    path.write_bytes(parquet(records) if suffix == "parquet" else lines(records))
    with pytest.raises(DataError, match=r"no field 'answer'; found .*'reward_model(\.ground_truth)?'"):
        training(store, PromptsSettings(prompts_per_stage=3, path=str(path)))
    source = SourceSettings(path=str(path), answer="reward_model.ground_truth", id="extra_info.index")
    settings = PromptsSettings(prompts_per_stage=3, held_out_share=0, source=source)
    taken = training(store, settings)
    assert [(row["prompt_id"], row["prompt"], row["answer"]) for row in taken] == [
        (f"row {number}", f"What is {number}+1?", str(number + 1)) for number in range(3)
    ]
    assert [json.loads(row["messages"]) for row in taken] == [record["prompt"] for record in records]
    (shard,) = prepare_prompts(store, settings, 0, 0)
    assert all(row["chat"] and row["messages"] for row in rows(store, [shard]))
    with pytest.raises(DataError, match=r"template: 'Q: \{prompt\}', but prompts are messages"):
        prepare_prompts(store, settings.model_copy(update={"template": "Q: {prompt}"}), 0, 0)


def test_fields_of_messages_that_json_has_no_type_for_are_texts(tmp_path: Path) -> None:
    """Logs of chats have the time of each message."""
    message = {"role": "user", "content": "What is 1+1?", "time": datetime(2026, 1, 2, 3, 4, 5), "hash": b"ab"}
    path = tmp_path / "p.parquet"
    path.write_bytes(parquet([{"prompt": [message], "answer": "2"}]))
    ((row,), unusable) = read_rows([(path, "mine")], SourceSettings(path=str(path)), "math")
    assert json.loads(row["messages"]) == [{**message, "time": "2026-01-02 03:04:05", "hash": "b'ab'"}]
    assert unusable == []


@pytest.mark.parametrize("share", [0.1, 0.3])
def test_of_fewer_held_out_prompts_than_wanted_all_are_taken(store: Store, tmp_path: Path, share: float, capsys):
    sums = [{"prompt_id": str(number), "prompt": f"{number}+1=", "answer": number + 1} for number in range(40)]
    path = write(tmp_path, [*sums, {"prompt_id": "none", "prompt": "2+1=", "answer": ""}])
    settings = PromptsSettings(prompts_per_stage=1, path=str(path), held_out_share=share, max_unusable_share=0.1)
    held_out = {row["prompt_id"] for row in rows(store, [prepare_held_out(store, settings, 500)])}
    assert held_out == {row["prompt_id"] for row in sums if hash_fraction(row["prompt_id"]) < share}
    assert f"evaluate.problems: 500, but the run holds out only {len(held_out)} prompts" in capsys.readouterr().out
    assert held_out | {row["prompt_id"] for row in training(store, settings)} == {row["prompt_id"] for row in sums}
    write(tmp_path, [{"prompt": "1+1=", "solution": 2}])
    with pytest.raises(DataError, match=r"prompts.jsonl, line 1: no field 'answer'; found \['prompt', 'solution'\]"):
        prepare_held_out(store, settings, 500)


def test_a_file_on_s3_is_read_like_one_here(store: Store, bucket: str, s3: S3, tmp_path: Path) -> None:
    path = write(tmp_path, [{"prompt": f"What is {number}+1?", "answer": number + 1} for number in range(40)])
    for key in ("prompts.jsonl", "folder.jsonl/part.jsonl"):
        s3.put(f"{bucket}/data/{key}", path.read_bytes())

    def read(place: str) -> list[dict]:
        return training(store, PromptsSettings(path=place, prompts_per_stage=8))

    assert read(f"{bucket}/data/prompts.jsonl") == read(f"{bucket}/data/folder.jsonl") == read(str(path))
    with pytest.raises(DataError, match=f"prompts.path: there is nothing at {bucket}/data/none.jsonl"):
        read(f"{bucket}/data/none.jsonl")
    s3.put(f"{bucket}/data/prompts.jsonl", b"no json")
    with pytest.raises(DataError, match=f"{bucket}/data/prompts.jsonl, line 1: not JSON"):
        read(f"{bucket}/data/prompts.jsonl")


def test_arithmetic_answers_as_programs(store: Store) -> None:
    settings = ARITHMETIC.model_copy(update={"arithmetic": ArithmeticSettings(levels=[2], as_code=True)})
    boxed, programs = (training(store, one) for one in (ARITHMETIC, settings))
    assert [row["prompt_id"] for row in programs] == [row["prompt_id"] for row in boxed]
    golds = [json.loads(row["answer"]) for row in programs]
    assert golds == [{"inputs": [""], "outputs": [row["answer"]]} for row in boxed]
    for problem in list(problems(2))[::500]:
        shown, guess = (extract_program(problem.solution(number, PROGRAM)) for number in (None, 7))
        assert (shown.answer, shown.shows_working) == (f"print({problem.answer})\n", True)
        assert (guess.answer, guess.shows_working) == ("print(7)\n", False)


@pytest.mark.parametrize("many", [1, 2, 7])
def test_of_a_small_file_one_prompt_is_held_out_but_not_the_only_one(store: Store, tmp_path: Path, many: int) -> None:
    path = write(tmp_path, [{"prompt": f"{number}+1=", "answer": number + 1} for number in range(many)])
    settings = PromptsSettings(prompts_per_stage=1, path=str(path), held_out_share=0.0001)
    trained = {row["prompt_id"] for row in training(store, settings)}
    assert len(trained) == max(1, many - 1)
    if many > 1:
        (held_out,) = rows(store, [prepare_held_out(store, settings, 500)])
        assert held_out["prompt_id"] not in trained
        with pytest.raises(DataError, match=r"0 training prompts; all are held out or removed\. To fix it: give more"):
            prepare_prompts(store, settings.model_copy(update={"held_out_share": 0.99999}), 0, 0)
        return
    with pytest.raises(DataError, match=r"no prompt is held out\. To fix it: raise prompts\.held_out_share, or name"):
        prepare_held_out(store, settings, 500)
