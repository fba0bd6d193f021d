"""Names in a store: its folders, the files of artifacts, and the facts of manifests. Each is declared once.

store.json                      the store's id
KIND/DIGEST/                    an artifact: its files, then manifest.json
progress/KEY/NAME-NUMBER/       a part of unfinished work: its files, then manifest.json
progress/KEY/lease/NUMBER       on S3, the process that does the work
made/KEY.json                   the artifacts that a step made, by the key of its work
runs/DIGEST.json                the record of a finished run, by its report
leases/KEY.lock                 the lock of work, or of a run, on this machine
tracking/                       files of wandb and TensorBoard
logs/                           the output of the runs of an experiment on this machine
preflight/                      the object that a check of the store writes and removes
staging/                        files that are being written on this machine
"""

from typing import Any, Literal, TypedDict, get_args

Kind = Literal[
    "prompts",
    "policy",
    "rollouts",
    "verdicts",
    "evaluation",
    "average",
    "report",
    "study",
    "laboratory",
    "reproduction",
]
KINDS: tuple[Kind, ...] = get_args(Kind)

MARKER = "store.json"
MANIFEST = "manifest.json"
PROGRESS, MADE, RUNS, LEASES, STAGING = "progress", "made", "runs", "leases", "staging"
TRACKING, LOGS, PREFLIGHT = "tracking", "logs", "preflight"
LEASE = "lease"
"""Folder of the leases of unfinished work, in the same folder as its parts."""

# Files of artifacts, with the kinds that have them. The columns of tables are in ``tables``.
PART_FILE = "part.parquet"  # unfinished work
PROMPTS_FILE = "prompts.parquet"  # prompts: a shard, or a benchmark's problems
BENCHMARK_FILE = "benchmark.json"  # prompts of a benchmark
TRAINING_FILE, REMOVED_FILE = "training.parquet", "removed.parquet"  # prompts: a training set, and its removed rows
ROLLOUTS_FILE = "rollouts.parquet"
VERDICTS_FILE = "verdicts.parquet"
METRICS_FILE = "metrics.parquet"  # a trained policy and a study: a row per update
EXAMPLES_FILE = "examples.parquet"  # a trained policy
SAMPLES_FILE = "samples.parquet"  # an evaluation
ACCURACY_FILE = "metrics.json"  # an evaluation and an average
CURVE_FILE = "curve.parquet"  # a study
RESULT_FILE = "result.json"  # a laboratory's comparison and a reproduction
PAGE_FILE = "report.html"  # a report and a reproduction
SUMMARY_FILE, SETTINGS_FILE = "summary.json", "settings.json"  # a report


class Facts(TypedDict, total=False):
    """Facts in manifests: small results, which depend on the kind of artifact."""

    stage: int  # a policy, where 0 is a base policy; prompts and rollouts of a stage, from 1
    preset: str  # a trained policy and a study
    updates_per_rollout: int  # a trained policy and a study
    updates: int  # a policy: of all stages so far; a study and a comparison of studies: of a run
    prompts: int  # prompts: the number of rows
    responses: int  # rollouts and verdicts
    reward: float | None  # verdicts: the mean over the responses that could be judged
    accuracy: float  # an evaluation and an average
    benchmark: str  # an evaluation, and prompts of a benchmark
    algorithm: str  # a report
    trained_from: int  # a report: the first stage, from 0, that the run trained; earlier stages belong to another run
    other_settings: dict[str, dict[str, Any]]  # a report: settings of the stages of another run
    part: str  # a laboratory's comparison
    runs: int  # a reproduction
