"""Make the artifact of the base policy: a tiny one, or one from a folder, an S3 prefix or the Hugging Face hub."""

from pathlib import Path

from tasks.artifacts import ArtifactRef, Store
from tasks.policy.sources import fetch_policy
from tasks.prompts.arithmetic import form_of, split
from tasks.settings import ArithmeticSettings, PolicySettings, TinyPolicySettings


def prepare_policy(
    store: Store,
    settings: PolicySettings,
    arithmetic: ArithmeticSettings,
    source: str,
    seed: int,
    chat: bool = False,
) -> ArtifactRef:
    """Make a policy artifact: a Hugging Face folder with configuration, safetensors and tokenizer.

    Args:
        store: where the artifact goes.
        settings: which policy.
        arithmetic: the problems that a tiny policy is warm-started on; their training part is used.
        source: fingerprint of the folder that settings name, noted in the manifest.
        seed: of a tiny policy's weights and warm start.
        chat: some of the run's prompts are chats; its tokenizer must have a template that takes them.

    Raises:
        DataError: the folder, prefix or hub model cannot be used, with what is missing.
    """
    with store.write("policy", settings=settings, parents={}, seed=seed) as draft:
        draft.facts.update(stage=0, updates=0, source=source)
        if settings.tiny is not None:
            with draft.phase("warm_start"):
                draft.facts["warm_start_cross_entropy"] = _make(draft.path, settings.tiny, arithmetic, seed)
        elif settings.path is not None:
            with draft.phase("load"):
                draft.facts.update(fetch_policy(draft.path, settings, chat))
    return draft.ref


def _make(folder: Path, settings: TinyPolicySettings, arithmetic: ArithmeticSettings, seed: int) -> float:
    from tasks.policy import tiny

    problems, _ = split(list(arithmetic.levels), arithmetic.held_out_share)
    form = form_of(arithmetic)
    tokenizer = tiny.build_tokenizer(form)
    model = tiny.build_model(settings, tokenizer, seed)
    cross_entropy = tiny.warm_start(model, tokenizer, problems, settings.warm_start, seed, form)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return cross_entropy
