"""Which prompts a stage takes, and which are kept for evaluation."""

from typing import Any, Literal

import numpy as np

from tasks.artifacts import ArtifactRef, Store
from tasks.artifacts.fetch import local_file
from tasks.artifacts.tables import PROMPTS, write_table
from tasks.errors import DataError
from tasks.prompts.arithmetic import Form, Problem, form_of, hash_fraction, split
from tasks.prompts.files import read_prompts
from tasks.settings import PromptsSettings

Split = Literal["training", "held_out"]
_FILE_HELD_OUT_SHARE = 0.1


def prepare_stage(store: Store, settings: PromptsSettings, source: str, stage: int, seed: int) -> list[ArtifactRef]:
    """The prompts of a stage, as one artifact per shard.

    Every pass over the training prompts is shuffled by ``seed`` and cut into whole stages, so that no prompt comes
    twice in a stage.

    Args:
        store: where the artifacts go.
        settings: the source and the number of prompts per stage.
        source: fingerprint of the files that settings name, noted in the manifest.
        stage: counts from 0.
        seed: the run's.

    Raises:
        DataError: the source has fewer prompts than a stage takes, or cannot be read.
    """
    rows = load_prompts(settings, "training")
    count = settings.prompts_per_stage
    if len(rows) < count:
        raise DataError(
            f"prompts.prompts_per_stage: {count}, but there are {len(rows)} training prompts; "
            f"allowed: 1 to {len(rows)}."
        )
    stages_per_pass = len(rows) // count
    epoch, place = divmod(stage, stages_per_pass)
    order = np.random.default_rng([seed, epoch]).permutation(len(rows))[place * count : (place + 1) * count]
    chosen = [rows[index] for index in order]
    size = settings.prompts_per_shard
    return [
        _write(store, settings, chosen[start : start + size], seed, {"stage": stage, "source": source})
        for start in range(0, count, size)
    ]


def prepare_held_out(store: Store, settings: PromptsSettings, source: str, problems: int) -> ArtifactRef:
    """The first ``problems`` held-out prompts, the same for every seed.

    Raises:
        DataError: fewer are held out.
    """
    rows = load_prompts(settings, "held_out")
    if len(rows) < problems:
        raise DataError(
            f"evaluate.problems: {problems}, but {len(rows)} prompts are held out; allowed: 1 to {len(rows)}."
        )
    return _write(store, settings, rows[:problems], 0, {"split": "held_out", "source": source})


def load_prompts(settings: PromptsSettings, part: Split) -> list[dict[str, Any]]:
    """Rows of the prompts table (see ``PROMPTS``), with the template applied."""
    if settings.arithmetic is not None:
        training, held_out = split(list(settings.arithmetic.levels), settings.arithmetic.held_out_share)
        form = form_of(settings.arithmetic)
        rows = [_row(problem, form) for problem in (training if part == "training" else held_out)]
    else:
        rows = _file_rows(settings, part)
    return [
        {**row, "prompt": settings.template.replace("{prompt}", row["prompt"]), "chat": settings.chat} for row in rows
    ]


def _row(problem: Problem, form: Form) -> dict[str, Any]:
    return {
        "prompt_id": problem.prompt_id,
        "prompt": problem.prompt,
        "answer": problem.gold(form),
        "level": problem.level,
    }


def _file_rows(settings: PromptsSettings, part: Split) -> list[dict[str, Any]]:
    if settings.path is None:
        raise ValueError("prompts.path is not set")
    with local_file(settings.path, "prompts.path") as file:
        rows = read_prompts(file, settings.path)
    if settings.held_out_path is not None:
        with local_file(settings.held_out_path, "prompts.held_out_path") as file:
            held_out = read_prompts(file, settings.held_out_path)
        shared = {row["prompt"] for row in rows} & {row["prompt"] for row in held_out}
        if shared:
            raise DataError(
                f"{settings.held_out_path}: {len(shared)} of its prompts are also in {settings.path}, for example "
                f"{min(shared)[:80]!r}. Remove them from one of the two."
            )
        return held_out if part == "held_out" else rows
    fractions = {row["prompt_id"]: hash_fraction(row["prompt_id"]) for row in rows}
    if part == "training":
        return [row for row in rows if fractions[row["prompt_id"]] >= _FILE_HELD_OUT_SHARE]
    held_out = [row for row in rows if fractions[row["prompt_id"]] < _FILE_HELD_OUT_SHARE]
    return sorted(held_out, key=lambda row: fractions[row["prompt_id"]])


def _write(
    store: Store, settings: PromptsSettings, rows: list[dict[str, Any]], seed: int, facts: dict[str, Any]
) -> ArtifactRef:
    with store.write("prompts", settings=settings, parents={}, seed=seed) as draft:
        write_table(draft.path / "prompts.parquet", rows, PROMPTS)
        draft.facts.update(facts, prompts=len(rows))
    return draft.ref
