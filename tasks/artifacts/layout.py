"""Names in a store, each declared once: its folders, the files of artifacts, and the facts of their manifests.

store.json                      the store's id
KIND/DIGEST/                    an artifact: its files, then manifest.json
progress/KEY/NAME-NUMBER/       a part of unfinished work: its files, then manifest.json
progress/KEY/lease/NUMBER       on S3, the process that does the work
made/KEY.json                   what a step made, by the key of its work
runs/DIGEST.json                the record of a finished run, by its report
leases/KEY.lock                 the lock of work on this machine
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
LEASE = "lease"
"""Folder beside the parts of a piece of unfinished work."""

PART_FILE = "part.parquet"
"""A file of unfinished work: a part that is a table."""
PROMPTS_FILE = "prompts.parquet"
"""A file of prompts: a shard, or a benchmark's problems. Columns: ``tables.PROMPTS``."""
TRAINING_FILE = "training.parquet"
"""A file of prompts: a training set. Columns: ``tables.TRAINING``."""
REMOVED_FILE = "removed.parquet"
"""A file of prompts: rows that a training set lost. Columns: ``tables.REMOVED``."""
ROLLOUTS_FILE = "rollouts.parquet"
"""A file of rollouts. Columns: ``tables.ROLLOUTS``."""
VERDICTS_FILE = "verdicts.parquet"
"""A file of verdicts. Columns: ``tables.VERDICTS``."""
METRICS_FILE = "metrics.parquet"
"""A file of a trained policy and of a study: a row per update."""
EXAMPLES_FILE = "examples.parquet"
"""A file of a trained policy. Columns: ``tables.EXAMPLES``."""
SAMPLES_FILE = "samples.parquet"
"""A file of an evaluation. Columns: ``tables.SAMPLES``."""
ACCURACY_FILE = "metrics.json"
"""A file of an evaluation and of an average."""
CURVE_FILE = "curve.parquet"
"""A file of a study. Columns: ``tables.CURVE``."""
RESULT_FILE = "result.json"
"""A file of a laboratory's comparison and of a reproduction."""
PAGE_FILE, SUMMARY_FILE, SETTINGS_FILE = "report.html", "summary.json", "settings.json"
"""A file of a report; the page also of a reproduction."""


class Facts(TypedDict, total=False):
    """Facts in manifests: small results, of which each kind of artifact has some."""

    stage: int
    """A fact of a policy, where 0 is a base policy; of a shard of prompts, where 0 is the first stage."""
    preset: str
    """A fact of a trained policy and a study, as ``updates_per_rollout``."""
    updates_per_rollout: int
    updates: int
    """A fact of a policy: the updates of all stages until then; of studies and their comparison: those of a run."""
    prompts: int
    """A fact of prompts: the number of rows."""
    overlapping: dict[str, int]
    """A fact of a training set: the rows that were left out because a benchmark asks them, by benchmark."""
    responses: int
    """A fact of rollouts and verdicts."""
    reward: float | None
    """A fact of verdicts: the mean over the responses that could be judged."""
    accuracy: float
    """A fact of an evaluation, and of an average over benchmarks."""
    benchmark: str
    """A fact of an evaluation, and of prompts of a benchmark."""
    benchmarks: dict[str, float]
    """A fact of an average: the accuracy by benchmark."""
    algorithm: str
    """A fact of a report, as the next two."""
    trained_from: int
    """The first stage that the run trained; those before are another run's."""
    other_settings: dict[str, dict[str, Any]]
    """Settings of the stages of another run."""
    part: str
    """A fact of a laboratory's comparison."""
    runs: int
    """A fact of a reproduction."""
