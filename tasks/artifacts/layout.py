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

from typing import TYPE_CHECKING, Any, Literal, TypedDict, cast, get_args

if TYPE_CHECKING:
    from tasks.artifacts.records import Manifest

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

PROMPTS_FILE = "prompts.parquet"
"""Of prompts: a shard, or a benchmark's problems. Columns: ``tables.PROMPTS``."""
TRAINING_FILE = "training.parquet"
"""Of prompts: a training set. Columns: ``tables.TRAINING``."""
REMOVED_FILE = "removed.parquet"
"""Of prompts: rows that a training set lost. Columns: ``tables.REMOVED``."""
ROLLOUTS_FILE = "rollouts.parquet"
"""Of rollouts. Columns: ``tables.ROLLOUTS``."""
VERDICTS_FILE = "verdicts.parquet"
"""Of verdicts. Columns: ``tables.VERDICTS``."""
METRICS_FILE = "metrics.parquet"
"""Of a trained policy and of a study: a row per update."""
EXAMPLES_FILE = "examples.parquet"
"""Of a trained policy. Columns: ``tables.EXAMPLES``."""
SAMPLES_FILE = "samples.parquet"
"""Of an evaluation. Columns: ``tables.SAMPLES``."""
ACCURACY_FILE = "metrics.json"
"""Of an evaluation and of an average."""
CURVE_FILE = "curve.parquet"
"""Of a study. Columns: ``tables.CURVE``."""
RESULT_FILE = "result.json"
"""Of a laboratory's comparison and of a reproduction."""
PAGE_FILE, SUMMARY_FILE, SETTINGS_FILE = "report.html", "summary.json", "settings.json"
"""Of a report; the page also of a reproduction."""


class PolicyFacts(TypedDict, total=False):
    """Facts of a policy and of a study."""

    preset: str
    stage: int
    """0 for a base policy."""
    updates: int
    """Updates of all stages until then."""
    updates_per_rollout: int


class ResponsesFacts(TypedDict, total=False):
    """Facts of rollouts and of verdicts."""

    responses: int
    reward: float | None
    """Mean over the responses that could be judged; of verdicts alone."""


class PromptsFacts(TypedDict, total=False):
    """Facts of prompts."""

    prompts: int
    stage: int
    """The stage of a shard; counts from 0."""
    benchmark: str
    overlapping: dict[str, int]
    """Rows that a training set lost, because a benchmark asks them, by benchmark."""


class AccuracyFacts(TypedDict, total=False):
    """Facts of an evaluation and of an average."""

    accuracy: float
    benchmark: str
    """Of an evaluation."""
    benchmarks: dict[str, Any]
    """Of an average."""


class RunFacts(TypedDict, total=False):
    """Facts of a report, a laboratory's comparison and a reproduction."""

    algorithm: str
    """Of a report."""
    trained_from: int
    """Stages before this one are another run's. Of a report."""
    other_settings: dict[str, Any]
    """Of a report: settings of a run that another run's artifacts do not have."""
    part: str
    runs: int


def policy_facts(manifest: "Manifest") -> PolicyFacts:
    """Return the facts of a policy or a study."""
    return cast(PolicyFacts, manifest.facts)


def responses_facts(manifest: "Manifest") -> ResponsesFacts:
    """Return the facts of rollouts or verdicts."""
    return cast(ResponsesFacts, manifest.facts)


def prompts_facts(manifest: "Manifest") -> PromptsFacts:
    """Return the facts of prompts."""
    return cast(PromptsFacts, manifest.facts)


def accuracy_facts(manifest: "Manifest") -> AccuracyFacts:
    """Return the facts of an evaluation or an average."""
    return cast(AccuracyFacts, manifest.facts)


def run_facts(manifest: "Manifest") -> RunFacts:
    """Return the facts of a report, a laboratory's comparison or a reproduction."""
    return cast(RunFacts, manifest.facts)
