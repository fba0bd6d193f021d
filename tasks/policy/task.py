"""The door of the step that provides the base policy."""

from tasks.platform import Artifact, StoreHandle, once, step
from tasks.settings import ArithmeticSettings, PolicySettings

VERSION = "4"


@step(VERSION, role="prefetch")
def prepare_policy(
    store: StoreHandle, settings: PolicySettings, arithmetic: ArithmeticSettings, source: str, seed: int, chat: bool
) -> Artifact:
    """The base policy. ``source`` is a fingerprint of ``settings.path``: a changed folder is taken in again.

    ``chat`` says that some prompts are chats.
    """
    from tasks.policy.step import prepare_policy as prepare

    return once(store, "prepare_policy", VERSION, prepare, settings, arithmetic, source, seed, chat)
