"""The step that measures a policy's accuracy on a benchmark."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from transformers import PreTrainedTokenizerBase

from tasks.data.benchmarks import BenchmarkNote
from tasks.errors import DeviceError
from tasks.evaluate.metrics import CORRECT, GREEDY, NO_VOTE, accuracy_facts, measure
from tasks.models.loading import OPTIMIZER, load_tokenizer, stop_token_ids
from tasks.process.interruption import save_on_sigterm
from tasks.process.logs import bar
from tasks.rollout.engine import Engine, OnDone, Sampling, engine_of, ignore_progress
from tasks.rollout.step import LengthCount, build_requests, decode, progress_callback, prompts_by_call, tokenise_all
from tasks.settings import EngineSettings, EvaluationSettings, OperationSettings, VerifySettings
from tasks.store import ArtifactRef, Parents, Store
from tasks.store.layout import ACCURACY_FILE, PROMPTS_FILE, SAMPLES_FILE
from tasks.store.tables import ROWS_AT_ONCE, SAMPLES, UNJUDGED_SAMPLES, read_table, to_table, write_table
from tasks.tracking import open_tracker
from tasks.verify.pool import Verifier, check_failures, shared_verifier
from tasks.verify.step import verifier_input
from tasks.verify.verdicts import FAILURES, Outcome


@save_on_sigterm
def evaluate_policy(
    store: Store,
    settings: EvaluationSettings,
    verify: VerifySettings,
    policy: ArtifactRef,
    prompts: ArtifactRef,
    seed: int,
    operation: OperationSettings = OperationSettings(),
) -> ArtifactRef:
    """Sample k responses to every problem, and with ``greedy`` one more at temperature 0, and judge them.

    Sampling seeds do not depend on the policy, so that policies are compared on common random numbers. The artifact has
    all responses and metrics.json. ``prompts`` is the benchmark.

    Raises:
        DataError: there can be no response to a problem; see ``tokenise_all``.
        DeviceError: the engine did not complete a response.
        GateError: the verifier could not judge too large a share of the responses.
        Interrupted: SIGTERM came; the responses of completed calls are kept.
    """
    parents: Parents = {"policy": policy, "prompts": [prompts]}
    k, longest = settings.samples_per_problem, settings.max_new_tokens
    with store.write("evaluation", settings=settings, parents=parents, seed=seed) as draft:
        with draft.phase("load"):
            folder = store.path(policy, without=OPTIMIZER)
            problems = store.path(prompts)
            rows, note = read_table(problems / PROMPTS_FILE).to_pylist(), BenchmarkNote.read(problems)
            tokenizer = load_tokenizer(folder)
            engine = engine_of(folder, policy.digest, settings.engine or EngineSettings())
            # A problem that does not fit stops the step before anything is generated.
            ids = tokenise_all(tokenizer, rows, engine.context_tokens, longest)
            lengths = LengthCount(tokenizer, stop_token_ids(folder), f"evaluate.max_new_tokens {longest}")
            stage, updates = (store.manifest(policy).facts[name] for name in ("stage", "updates"))
            title = f"evaluate {f'stage {stage}' if stage else 'base'} {note.name}"
        samplings: list[tuple[Sequence[int], Sampling]] = [(range(k), Sampling(longest, settings.temperature))]
        if settings.greedy:
            samplings.append(([GREEDY], Sampling(longest, temperature=0.0)))
        samples: list[dict[str, Any]] = []
        # All samples of a problem share its texts, because the tests of a program can take megabytes.
        texts = {row["prompt_id"]: {"prompt": row["prompt"], "answer": row["answer"]} for row in rows}
        with draft.phase("generate"), bar(title, len(rows) * (k + settings.greedy)) as progress:
            on_done = progress_callback(progress)
            for number, chunk in enumerate(prompts_by_call(rows, settings.problems_per_call)):

                def generate(chunk: Sequence[Mapping[str, Any]] = chunk) -> pa.Table:
                    sampled: list[dict[str, Any]] = []
                    for indices, sampling in samplings:
                        asked = engine, tokenizer, chunk, ids, indices, sampling, seed
                        sampled += sample_problems(*asked, on_done, lengths)
                    return to_table(sampled, UNJUDGED_SAMPLES)

                table = store.progress.table("samples", number, generate)
                samples += [{**sample, **texts[sample["prompt_id"]]} for sample in table.to_pylist()]
                progress.reach(len(samples))
        verifier = shared_verifier(verify)
        with draft.phase("start"):
            verifier.start()
        with draft.phase("verify"):
            judge_samples(samples, verifier, verify, f"{title} verify")
            sampled = [sample for sample in samples if sample["sample_index"] != GREEDY]
            classes = answer_classes(sampled, verifier, f"{title} maj@{k}") if note.answer_type == "math" else None
        write_table(draft.path / SAMPLES_FILE, samples, SAMPLES, ROWS_AT_ONCE)
        metrics = measure(samples, classes, k, note.name, rewards=note.answer_type == "function")
        (draft.path / ACCURACY_FILE).write_text(json.dumps(metrics, indent=1))
        # An earlier attempt may have generated some of the responses.
        counts = len(samples), sum(sample["finish_reason"] == "length" for sample in samples)
        draft.facts.update(benchmark=note.name, **accuracy_facts(metrics), **lengths.facts(title, counts))
        with open_tracker(operation.tracker, store, title, settings.model_dump(mode="json")) as show:
            show(f"evaluate/{note.name}", {"update": updates, "stage": stage, **draft.facts})
    return draft.ref


def sample_problems(
    engine: Engine,
    tokenizer: PreTrainedTokenizerBase,
    rows: Sequence[Mapping[str, Any]],
    token_ids: Mapping[str, list[int]],
    indices: Sequence[int],
    sampling: Sampling,
    seed: int,
    on_done: OnDone = ignore_progress,
    lengths: LengthCount | None = None,
) -> list[dict[str, Any]]:
    """Sample responses, and return them as rows of the samples table without verdicts.

    ``token_ids`` are those of the problems by prompt_id; ``lengths`` counts the responses.

    Raises:
        DeviceError: the engine did not complete a response.
    """
    asked = {row["prompt_id"]: token_ids[row["prompt_id"]] for row in rows}
    requests = build_requests(asked, indices, "evaluate", seed)
    responses = engine.generate(requests, sampling, on_done)
    for request, response in zip(requests, responses, strict=True):
        if response.finish_reason == "missing":
            raise DeviceError(
                f"problem {request.prompt_id!r}: the engine did not complete a response, which would count as wrong. "
                "Start the same command again: it continues after the last saved part."
            )
        if lengths is not None:
            lengths.add(response.token_ids, response.finish_reason)
    texts = decode(tokenizer, responses)
    per_request = (row for row in rows for _ in indices)
    return [
        {
            "prompt_id": row["prompt_id"],
            "sample_index": request.sample_index,
            "level": row["level"],
            "prompt": row["prompt"],
            "answer": row["answer"],
            "response": text,
            "response_tokens": len(response.token_ids),
            "finish_reason": response.finish_reason,
        }
        for row, request, response, text in zip(per_request, requests, responses, texts, strict=True)
    ]


def judge_samples(samples: Sequence[dict[str, Any]], verifier: Verifier, settings: VerifySettings, title: str) -> None:
    """Add verdicts to rows of the samples table; see ``check_failures`` for errors."""
    verdicts = verifier.verify([verifier_input(sample) for sample in samples], title)
    for sample, verdict in zip(samples, verdicts, strict=True):
        sample.update(vars(verdict))
    check_failures(samples, settings, len(samples))


def answer_classes(samples: Sequence[Mapping[str, Any]], verifier: Verifier, title: str = "") -> list[int]:
    """Return the class of every sample's answer: ``CORRECT``, ``NO_VOTE``, or a number from 1 on for wrong ones.

    Samples hold their verdicts; those without a judged answer have no vote. For each problem the first wrong answer
    without a class starts one, and the verifier tells which of the other wrong answers equal it. An answer whose
    comparison fails has a class of its own, because its other comparisons would take as long.
    """
    wrong = [
        (str(sample["prompt_id"]), sample["extracted"] or "") if sample["outcome"] is Outcome.WRONG else None
        for sample in samples
    ]
    left: dict[str, list[str]] = {}
    for name, answer in dict.fromkeys(filter(None, wrong)):
        left.setdefault(name, []).append(answer)
    classes: dict[tuple[str, str], int] = {}
    number = 0
    with bar(title, sum(map(len, left.values()))) as progress:
        while left := {name: answers for name, answers in left.items() if answers}:
            equal = number = number + 1
            firsts = {name: answers.pop(0) for name, answers in left.items()}
            asked = [(name, answer) for name, answers in left.items() for answer in answers]
            pairs = [(firsts[name], rf"\boxed{{{answer}}}") for name, answer in asked]
            found = verifier.verify(pairs, "") if pairs else []
            classes |= dict.fromkeys(firsts.items(), equal)
            for (name, answer), verdict in zip(asked, found, strict=True):
                if verdict.outcome in FAILURES:
                    number += 1
                elif verdict.outcome is not Outcome.CORRECT:
                    continue
                classes[name, answer] = equal if verdict.outcome is Outcome.CORRECT else number
                left[name].remove(answer)
            progress.reach(len(classes))
    votes = {Outcome.CORRECT: CORRECT}
    return [
        classes[answer] if answer else votes.get(sample["outcome"], NO_VOTE)
        for answer, sample in zip(wrong, samples, strict=True)
    ]
