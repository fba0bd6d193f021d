"""Rows of a run that nobody trained, as the tables of its artifacts have them."""

import math
from typing import Any

import numpy as np
from tokenizers import Tokenizer, models

from tasks.train.results import ADVANTAGE_EDGES, LOG_RATIO_EDGES

HOSTILE = "<script>alert('response')</script>\n</pre><img src=https://example.com/x.png>\x07"
VOCABULARY = ("seven", "<b>times</b>", "8", "is", "wrong")
PROBLEMS, K = 40, 4
LENGTH = 24
"""Tokens of a response that was trained on."""


def tokenizer_json() -> str:
    """A tokenizer of words, as a policy's folder has it."""
    words = {word: number for number, word in enumerate(VOCABULARY)}
    return str(Tokenizer(models.WordLevel(words, unk_token=VOCABULARY[0])).to_str())


def prompt_rows() -> list[dict[str, Any]]:
    return [
        {"prompt_id": f"L2:{a}+7*8", "prompt": f"{a}+7*8=", "answer": str(a + 56), "level": 2 + a % 2, "chat": False}
        for a in range(10, 10 + PROBLEMS)
    ]


def sample_rows(stage: int, skill: float) -> list[dict[str, Any]]:
    """Answers of a policy that solves so large a share, after that many stages."""
    rows = []
    for place, one in enumerate(prompt_rows()):
        a, answer = int(one["answer"]) - 56, one["answer"]
        for index in range(-1, K):
            right = (place * 7 + 3 * max(index, 0)) % PROBLEMS < skill * PROBLEMS
            if place in (33, 39):  # One turns wrong, and the hostile one stays wrong.
                right = place == 33 and stage == 0
            text = f"7*8=56;{a}+56={answer};\\boxed{{{answer}}}" if right else f"\\boxed{{{int(answer) + 3}}}"
            rows.append(
                {
                    **{key: one[key] for key in ("prompt_id", "level", "prompt", "answer")},
                    "sample_index": index,
                    "response": HOSTILE if place == 39 else text,
                    "response_tokens": len(text),
                    "finish_reason": "length" if place == 39 else "stop",
                    "outcome": "correct" if right else "no_answer" if place == 39 else "wrong",
                    "reward": float(right),
                    "shows_working": right,
                }
            )
    # The hostile problem comes first, so that it is among the examples.
    return sorted(rows, key=lambda row: row["prompt_id"] != "L2:49+7*8")


def example_rows(stage: int, updates_per_stage: int, preset: str) -> list[dict[str, Any]]:
    """Two updates of the stage with two responses each; the veto takes part of the worst one in the last update."""
    rows = []
    for update in (1, updates_per_stage):
        for reward in (1.0, 0.0):
            count = LENGTH + (0 if reward else 1)
            trigger = [not reward and update > 1 and place == 3 for place in range(count)]
            vetoed = [any(trigger) and preset == "mu_grpo" and place > 3 for place in range(count)]
            logp = [-0.5 + 0.125 * (place % 4) * (update > 1) for place in range(count)]
            rows.append(
                {
                    "stage": stage,
                    "update": (stage - 1) * updates_per_stage + update,
                    "staleness": update - 1,
                    "reward": reward,
                    "advantage": 2 * reward - 1,
                    "prompt_token_ids": [1, 2],
                    "response_token_ids": [place % len(VOCABULARY) for place in range(count)],
                    "ratio": [math.exp(value + 0.5) for value in logp],
                    "logp": logp,
                    "behavior_logp": [-0.5] * count,
                    "clipped": [place == 1 for place in range(count)],
                    "trigger": trigger,
                    "vetoed": vetoed,
                    "rejected": [preset == "grpo" and place == 2 for place in range(count)],
                }
            )
    return rows


def histograms(age: float, preset: str) -> dict[str, list[int]]:
    """Of 16 responses: two have advantage 0, and of those below it the veto takes a part."""
    counts = np.zeros(len(ADVANTAGE_EDGES) - 1, dtype=int)
    counts[[5, 7, 8, 10]] = LENGTH * np.array([2, 6, 2, 6])
    kept = counts.copy()
    if preset == "mu_grpo":
        kept[:8] -= np.round(0.15 * age * counts[:8]).astype(int)
    ratios = np.zeros(len(LOG_RATIO_EDGES) - 1, dtype=int)
    ratios[14] = 8 * LENGTH  # just below 1, and just above it for positive advantages
    return {
        "advantage_histogram": counts.tolist(),
        "advantage_histogram_kept": kept.tolist(),
        "ratio_histogram_negative": ratios.tolist(),
        "ratio_histogram_positive": ratios[::-1].tolist(),
    }
