"""A tiny base policy in a folder, so that what making it takes is no part of the runs that are measured."""

from pathlib import Path

from tasks.models.loading import OPTIMIZER
from tasks.models.step import prepare_policy
from tasks.settings import ArithmeticSettings, PolicySettings, TinyPolicySettings, WarmStartSettings
from tasks.store import Store


def base_policy(folder: Path, arithmetic: ArithmeticSettings, warm: WarmStartSettings) -> Path:
    """A default one, warm-started on some arithmetic; below ``folder``."""
    store, tiny = Store.open(str(folder / "policies")), TinyPolicySettings(warm_start=warm)
    return store.path(prepare_policy(store, PolicySettings(tiny=tiny), arithmetic, "", 0), without=OPTIMIZER)
