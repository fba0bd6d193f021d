"""A tiny base policy in a folder, so that what making it takes is no part of the runs that are measured."""

from pathlib import Path

from tasks.artifacts import Store
from tasks.policy.loading import OPTIMIZER
from tasks.policy.step import prepare_policy
from tasks.settings import ArithmeticSettings, PolicySettings, TinyPolicySettings, WarmStartSettings


def base_policy(folder: Path, arithmetic: ArithmeticSettings, warm: WarmStartSettings) -> Path:
    """A default one, warm-started on some arithmetic; below ``folder``."""
    store, tiny = Store.open(str(folder / "policies")), TinyPolicySettings(warm_start=warm)
    return store.path(prepare_policy(store, PolicySettings(tiny=tiny), arithmetic, "", 0), without=OPTIMIZER)
