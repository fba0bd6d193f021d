"""Make the artifact of the base policy: a tiny policy, or one from a folder, an S3 prefix or the Hugging Face hub."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tasks.data.arithmetic import form_of, split
from tasks.errors import DataError
from tasks.models.checks import check_folder, check_model
from tasks.models.files import ADAPTER_CONFIG, INDEX, WEIGHTS, weight_files
from tasks.settings import ArithmeticSettings, PolicySettings, TinyPolicySettings
from tasks.settings.base import local_path
from tasks.store import ArtifactRef, Store
from tasks.store.fetch import check_fingerprint, fetch, fingerprint, snapshot
from tasks.store.layout import MANIFEST

_ALL_WEIGHTS = "*.safetensors"
_FILES = ["*.json", _ALL_WEIGHTS, "*.model", "*.txt", "*.jinja"]
_CODE = ["*.py"]


def prepare_policy(
    store: Store, settings: PolicySettings, arithmetic: ArithmeticSettings, source: str, seed: int, chat: bool = False
) -> ArtifactRef:
    """Make a policy artifact: a Hugging Face folder with configuration, safetensors and tokenizer.

    A tiny policy depends on the seed, and is warm-started on the training part of the arithmetic problems. ``source``
    is the result of ``policy_fingerprint`` when the run started; empty if it is not known. With ``chat`` some of the
    run's prompts are chats, for which the tokenizer must have a template.

    Raises:
        DataError: the folder, prefix or hub model cannot be used, or changed during the run; the message says why.
    """
    with store.write("policy", settings=settings, parents={}, seed=seed) as draft:
        draft.facts.update(stage=0, updates=0, source=source)
        if settings.tiny is not None:
            with draft.phase("warm_start"):
                draft.facts["warm_start_cross_entropy"] = _make(draft.path, settings.tiny, arithmetic, seed)
        elif settings.path is not None:
            with draft.phase("load"):
                facts = _fetch(draft.path, settings.path, settings, chat, source)
            check_fingerprint(source, facts.get("revision") or fingerprint(settings.path), "policy.path")
            draft.facts.update(facts)
    return draft.ref


def _make(folder: Path, settings: TinyPolicySettings, arithmetic: ArithmeticSettings, seed: int) -> float:
    from tasks.models import tiny

    problems, _ = split(arithmetic)
    form = form_of(arithmetic)
    tokenizer = tiny.build_tokenizer(form)
    model = tiny.build_model(settings, tokenizer, seed)
    cross_entropy = tiny.warm_start(model, tokenizer, problems, settings.warm_start, seed, form)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return cross_entropy


def _fetch(folder: Path, source: str, settings: PolicySettings, chat: bool, commit: str) -> dict[str, Any]:
    """Copy a policy's files into a folder, check them, and return facts about the source: the hub's commit.

    ``commit`` is used for a model of the hub alone; empty if it is not known.
    """
    patterns = _FILES + (_CODE if settings.trust_remote_code else [])
    facts: dict[str, Any] = {}
    if settings.revision is not None and (source.startswith("s3://") or local_path(source).is_dir()):
        raise DataError(f"policy.revision: {settings.revision!r} of {source}, which is not on the hub; allowed: null.")
    with TemporaryDirectory(dir=folder) as fetched:
        if source.startswith("s3://"):
            local = Path(fetched)
            fetch(source, local, "policy.path", lambda name: any(fnmatch(name, pattern) for pattern in patterns))
        elif (local := local_path(source)).is_dir():
            pass
        elif source.startswith((".", "/", "~")):
            raise DataError(f"policy.path: {source!r} is not a folder. Name one, s3://bucket/prefix or a hub model.")
        else:
            local = snapshot("model", source, commit or settings.revision, patterns, "policy.path")
            facts["revision"] = local.name
        with _naming_source(source, local):
            check_folder(local, settings.trust_remote_code)
        # A folder may hold the same weights twice, and a policy of another store has the manifest of that artifact.
        left = {MANIFEST, ADAPTER_CONFIG, *([INDEX] if (local / WEIGHTS).is_file() else [])}
        files = {file for pattern in patterns if pattern != _ALL_WEIGHTS for file in local.glob(pattern)}
        for file in sorted(files.union(weight_files(local))):
            if file.name not in left:
                shutil.copyfile(file, folder / file.name)
    with _naming_source(source, folder):
        check_model(folder, chat)
    return facts


@contextmanager
def _naming_source(source: str, place: Path) -> Iterator[None]:
    """Replace the name of a temporary folder in errors by that of the source."""
    try:
        yield
    except DataError as error:
        raise DataError(error.message.replace(str(place), source)) from error
