"""Training sets: what leaves them, that nobody is misled about it, and that benchmarks are not trained on."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.data.arithmetic import hash_fraction
from tasks.data.training import Overlap, ProblemIndex, prepare_training_set
from tasks.errors import DataError, SettingsError
from tasks.settings import TRAINING_SETS, ArithmeticSettings, OperationSettings, PromptsSettings, SourceSettings
from tasks.store import ArtifactRef, Store
from tasks.store.tables import read_table
from tests.data.hub import lines, parquet
from tests.prepared import VERIFY, prepare_measured, prepare_training

WORDS = st.sampled_from(["a", "bag", "of", "red", "marbles", "holds", "three", "green", "ones", "than", "white"])
QUESTION = "Every morning Aya goes for a nine kilometre walk and stops at a coffee shop afterwards. How long is it?"


def problems(words: int, *texts: str) -> ProblemIndex:
    found = ProblemIndex(words)
    found.add("mine", [{"prompt_id": str(place), "problem": text} for place, text in enumerate(texts)])
    return found


@given(st.lists(WORDS, min_size=13, max_size=40), st.lists(WORDS, max_size=20), st.lists(WORDS, max_size=20), st.data())
def test_a_shared_run_of_words_is_found(problem: list[str], before: list[str], after: list[str], data) -> None:
    start = data.draw(st.integers(0, len(problem) - 13))
    planted = " ".join([*before, *problem[start : start + 13], *after])
    found = problems(13, " ".join(problem)).find(planted)
    assert (found.benchmark, found.problem) == ("mine", "0")


@given(st.lists(WORDS, min_size=13, max_size=40), st.integers(8, 12))
def test_a_shorter_run_of_words_is_no_overlap(problem: list[str], shared: int) -> None:
    prompt = " ".join([*problem[:shared], *(f"other{number}" for number in range(20))])
    assert problems(13, " ".join(problem)).find(prompt) is None


def test_comparison_ignores_case_and_spaces_but_not_signs() -> None:
    searched = problems(13, "What is $1 + 2$?", QUESTION)
    assert searched.find("WHAT is $\uff11+2$ ?") == Overlap("mine", "0", 0)
    assert searched.find("What is $1 - 2$?") is None
    assert searched.find(f"Solve. {QUESTION.upper()} Explain!") == Overlap("mine", "1", 13)
    # A short problem is searched for with all its words.
    eight = "one two three four five six seven eight"
    assert problems(13, eight).find(f"and {eight} and") == Overlap("mine", "0", 8)
    assert problems(13, eight.removesuffix(" eight")).find(f"and {eight} and") is None


def test_common_phrases_of_a_benchmark_are_no_overlap() -> None:
    preamble = "Solve the following problem of a mathematics competition and give the answer as a number:"
    searched = problems(13, *(f"{preamble * (n < 10)} {n} plus {n}" for n in range(100)), *[QUESTION] * 5)
    assert searched.find(f"So: {QUESTION}") == Overlap("mine", "100", 13)
    assert searched.find(f"{preamble} 700 plus 8") is None
    assert searched.find(f"{preamble} 7 plus 7") == Overlap("mine", "7", 0)
    few = problems(13, f"{preamble} {QUESTION}")
    few.remove_phrases([f"{preamble * (n < 40)} {n} plus 8" for n in range(100)] + [QUESTION] * 5)
    assert few.find(f"{preamble} 7 plus 8") is None
    assert few.find(f"So: {QUESTION}") == Overlap("mine", "0", 13)


def benchmark(store: Store, path: Path, rows: list[dict]) -> ArtifactRef:
    path.write_bytes(lines(rows))
    prompts = PromptsSettings(path="unused", prompts_per_stage=1, template="Reason step by step. {prompt}")
    return prepare_measured(store, prompts, benchmarks=[{"name": path.stem, "source": {"path": str(path)}}])


def settings_of(path: Path, rows: list[dict], **changes: float) -> PromptsSettings:
    """Settings that train on a file with these rows."""
    path.write_bytes(lines(rows))
    return PromptsSettings(path=str(path), prompts_per_stage=1, held_out_share=0, **changes)


def test_problems_of_benchmarks_leave_the_training_set(store: Store, tmp_path: Path) -> None:
    rows = [{"prompt_id": str(number), "prompt": f"What is {number}+1?", "answer": number + 1} for number in range(30)]
    rows.append({"prompt_id": "walk", "prompt": f"{QUESTION} Aya's dog asks.", "answer": "4"})
    rows += [{"prompt": "What"}, {"prompt_id": "dots", "prompt": "p", "answer": "\\ldots"}]
    settings = settings_of(tmp_path / "all.jsonl", rows, max_unusable_share=0.1)
    asked = [
        benchmark(store, tmp_path / "hard.jsonl", [{"prompt": QUESTION, "answer": "4"}]),
        benchmark(store, tmp_path / "easy.jsonl", [{"prompt": "what is 3 + 1?", "answer": "4"}]),
    ]
    training = prepare_training(store, settings, *asked)
    folder, facts = store.path(training), store.manifest(training).facts
    kept = read_table(folder / "training.parquet")["prompt_id"].to_pylist()
    assert kept == [str(number) for number in range(30) if number != 3]
    assert (facts["rows"], facts["prompts"], facts["unusable"], facts["held_out"], facts["equal"]) == (33, 29, 2, 0, 1)
    assert facts["overlapping"] == {"easy": 1, "hard": 1}
    assert set(facts["removed"]) == {f"{tmp_path}/all.jsonl, line 32", "dots", "3", "walk"}
    removed = {row["prompt_id"]: row for row in read_table(folder / "removed.parquet").to_pylist()}
    assert removed[""]["place"] == f"{tmp_path}/all.jsonl, line 32"
    assert removed["dots"]["reason"] == "gold answer '\\\\ldots'"
    assert (removed["walk"]["benchmark"], removed["walk"]["reason"]) == ("hard", "13 words shared")

    other = benchmark(store, tmp_path / "other.jsonl", [{"prompt": "Something else entirely?", "answer": "1"}])
    assert prepare_training(store, settings, *asked, other) == training
    equal_alone = settings.model_copy(update={"overlap_words": 0})
    assert store.manifest(prepare_training(store, equal_alone, *asked)).facts["overlapping"] == {"easy": 1}


def test_of_a_share_of_the_rows_only_its_own_unusable_rows_count(store: Store, tmp_path: Path) -> None:
    rows = [{"prompt_id": str(number), "prompt": f"p{number}", "answer": "1" * (number % 50)} for number in range(1000)]
    (tmp_path / "all.jsonl").write_bytes(lines(rows))
    source = SourceSettings(path=str(tmp_path / "all.jsonl"), share=0.2)
    settings = PromptsSettings(prompts_per_stage=1, held_out_share=0.5, source=source, max_unusable_share=0.05)
    assert settings.held_out == source.model_copy(update={"share": 0.1})
    facts = store.manifest(prepare_training(store, settings)).facts
    assert facts["rows"] == sum(hash_fraction(row["prompt_id"]) < 0.2 for row in rows)
    assert facts["held_out"] == sum(hash_fraction(row["prompt_id"]) < 0.1 for row in rows if row["answer"])
    assert facts["removed"] == [row["prompt_id"] for row in rows[::50] if hash_fraction(row["prompt_id"]) < 0.2]


def test_words_in_place_of_an_answer_are_unusable(store: Store, tmp_path: Path) -> None:
    usable = ["1", "none of them"]
    others = ["proof", r"\text{Proof.}", "notfound", "not found", "unknown", "None", "N/A", "null"]
    answers = enumerate([*usable, *others])
    rows = [{"prompt_id": str(number), "prompt": f"p{number}", "answer": one} for number, one in answers]
    message = r"prompt_id '2': gold answer 'proof' cannot be read by .* .docs/verifying.md .* 8 of 10 rows cannot"
    with pytest.raises(DataError, match=message):
        prepare_training(store, settings_of(tmp_path / "all.jsonl", rows))
    made = prepare_training(store, settings_of(tmp_path / "all.jsonl", rows, max_unusable_share=0.8))
    assert read_table(store.path(made) / "training.parquet")["answer"].to_pylist() == usable


def test_generated_problems_of_a_benchmark_are_not_trained_on(store: Store) -> None:
    """The benchmark holds out a larger share of all problems than the training set."""
    settings = PromptsSettings(prompts_per_stage=1, arithmetic=ArithmeticSettings(levels=[1]))
    source = {"arithmetic": {"levels": [1], "held_out_share": 0.5}}
    half = prepare_measured(store, settings, benchmarks=[{"name": "half", "source": source}])
    evaluated = set(read_table(store.path(half) / "prompts.parquet")["prompt_id"].to_pylist())
    trained = read_table(store.path(prepare_training(store, settings, half)) / "training.parquet")["prompt_id"]
    assert evaluated.isdisjoint(trained.to_pylist())
    assert len(evaluated) + len(trained) == 720


def test_every_known_training_set_is_pinned_and_others_are_refused() -> None:
    for name in TRAINING_SETS:
        settings = PromptsSettings.parse({"source": name, "prompts_per_stage": 1})
        assert settings.rows.pinned
        assert settings.training_set.max_unusable_share == 0.05
        assert settings.held_out.share == 0.1
    with pytest.raises(SettingsError, match=r"prompts.source: got 'dapo17k'; no training set .*; known: math, "):
        PromptsSettings.parse({"prompts_per_stage": 1, "source": "dapo17k"})


def test_a_set_of_the_hub_is_cut_anew_for_another_share_that_is_held_out(store: Store, tmp_path: Path) -> None:
    (tmp_path / "openai/gsm8k/main").mkdir(parents=True)
    rows = [{"question": f"What is {number} plus 1?", "answer": f"#### {number + 1}"} for number in range(60)]
    (tmp_path / "openai/gsm8k/main/train-00000-of-00001.parquet").write_bytes(parquet(rows))
    operation = OperationSettings(mirror=str(tmp_path))
    for share in (0.5, 0.1):
        prompts = PromptsSettings(prompts_per_stage=4, source="gsm8k", held_out_share=share)
        held_out = prepare_measured(store, prompts, operation.mirror, problems=3)
        made = prepare_training_set(store, prompts.training_set, VERIFY, "", [held_out], operation)
    assert 0 < store.manifest(made).facts["prompts"] < 60
