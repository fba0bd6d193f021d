"""``pyflyte`` with a log of its work: a line per unit, written when the unit is complete.

    python -m tools.faults.counting LOG run workflows/mu_grpo.py ...

A line is ``kind name amount``. A unit is one of: the responses of one call of the engine for training (``generate``) or
evaluation (``evaluate``), the answers of one call of the verifier, an update, or the start of an upload.
"""

import functools
import hashlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


def log_work(log: Path) -> None:
    """Patch the functions that do the work of this process, so that they write to the log."""
    handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(kind: str, name: str, amount: int) -> None:
        os.write(handle, f"{kind} {name} {amount}\n".encode())

    import tasks.evaluate.step as evaluation
    from tasks.rollout.transformers_engine import TransformersEngine
    from tasks.store.s3 import Bucket
    from tasks.train.trainer import Trainer
    from tasks.verify.pool import Verifier

    def generated(engine: Any, requests: Any, sampling: Any, on_done: Any) -> Any:
        responses = generate(engine, requests, sampling, on_done)
        seeds = repr([request.seed for request in requests])
        weights = float(next(engine._model.parameters()).detach().double().sum())
        note("evaluate" if evaluating else "generate", digest(seeds, repr(weights)), len(requests))
        return responses

    def evaluated(*inputs: Any, **named: Any) -> Any:
        evaluating.append(True)
        try:
            return evaluate(*inputs, **named)
        finally:
            evaluating.clear()

    def verified(verifier: Any, pairs: Any, *rest: Any) -> Any:
        pairs = list(pairs)
        verdicts = verify(verifier, pairs, *rest)
        note("verify", digest(repr(pairs)), len(pairs))
        return verdicts

    def updated(trainer: Any, work: Any, *rest: Any) -> Any:
        result = update(trainer, work, *rest)
        note("update", f"{work.stage}-{trainer.updates}", 1)
        return result

    def uploading(bucket: Any, folder: Any, files: Any, prefix: str, **named: Any) -> Any:
        note("upload", prefix, len(files))
        return upload(bucket, folder, files, prefix, **named)

    evaluating: list[bool] = []
    generate, verify, evaluate = TransformersEngine.generate, Verifier.verify, evaluation.evaluate_policy
    update, upload = Trainer._update, Bucket.upload
    replaced: list[tuple[Any, str, Callable[..., Any]]] = [
        # The task passes arguments by name, so the signature must stay.
        (evaluation, "evaluate_policy", functools.wraps(evaluate)(evaluated)),
        (TransformersEngine, "generate", generated),
        (Verifier, "verify", verified),
        (Trainer, "_update", updated),
        (Bucket, "upload", uploading),
    ]
    for owner, name, function in replaced:
        setattr(owner, name, function)


def digest(*texts: str) -> str:
    """Return a short name for a unit of work."""
    return hashlib.sha256("|".join(texts).encode()).hexdigest()[:16]


if __name__ == "__main__":
    log_work(Path(sys.argv[1]))
    from flytekit.clis.sdk_in_container.pyflyte import main

    sys.argv = ["pyflyte", *sys.argv[2:]]
    main()
