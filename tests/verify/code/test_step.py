"""Programs through the real step."""

from tasks.data.benchmarks import unreadable_golds
from tasks.settings import SourceSettings
from tasks.store.tables import read_table
from tasks.verify.step import verify_rollouts
from tests.verify.helpers import asserts, code_settings, fenced, texts
from tests.verify.test_step import shard


def test_a_response_without_a_program_and_an_unreadable_gold_answer_have_their_outcomes(store):
    right, gold = "print(5)", texts(("", "5"))
    rows = [
        ("no block", 0, gold, right, 1, "stop"),
        ("another language", 0, gold, f"```c\n{right}\n```", 1, "stop"),
        ("cut off", 0, gold, f"```python\n{right}\n", 1, "length"),
        ("too long", 0, gold, fenced(right + " " * 100), 1, "stop"),
        ("missing", 0, gold, "", 0, "missing"),
        ("gold is not JSON", 0, "5", fenced(right), 1, "stop"),
        ("gold calls nothing", 0, asserts("assert True"), fenced(right), 1, "stop"),
        ("gold is too long", 0, texts(("", "5" * (2 << 20))), fenced(right), 1, "stop"),
        ("right", 0, gold, fenced("print(6)") + "\n" + fenced(right), 1, "stop"),
        ("gold is as long as may be", 0, texts(("", "5" * (1 << 20))), fenced(right), 1, "stop"),
    ]
    settings = code_settings(max_program_characters=100, output_mib=1)
    ref = verify_rollouts(store, settings, [shard(store, rows)], 0, 0)
    outcomes = [(one["outcome"], one["reward"]) for one in read_table(store.path(ref) / "verdicts.parquet").to_pylist()]
    none, unparsable = ("no_answer", 0.0), ("gold_unparsable", None)
    assert outcomes == [none] * 4 + [("missing", None)] + [unparsable] * 3 + [("correct", 1.0), ("wrong", 0.0)]
    golds = [{"prompt_id": name, "prompt": "", "answer": answer} for name, _, answer, *_ in rows]
    unreadable = unreadable_golds(golds, SourceSettings(path="mine.jsonl"), settings, "mine")
    assert list(unreadable) == [name for name, *_ in rows[5:8]]
