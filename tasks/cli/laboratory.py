"""The command that runs a part of the laboratory, and renews its table and figure in a page that people write."""

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tasks.cli.pages import renew
from tasks.errors import DataError
from tasks.experiments.arms import FULL, QUESTIONS, QUICK, Part

if TYPE_CHECKING:
    from tasks.store import Store


def laboratory(
    part: Annotated[
        Part,
        typer.Argument(help="a: the clipping dilemma; b: where the harm is; c: threshold and stages; d: all presets."),
    ],
    quick: Annotated[bool, typer.Option(help="Everything in miniature, on one seed; proves nothing.")] = False,
    config: Annotated[Path | None, typer.Option(help="Settings; configs/laboratory.yaml without it.")] = None,
    jobs: Annotated[int | None, typer.Option(min=1, help="Runs side by side; one per core without it.")] = None,
    overrides: Annotated[str, typer.Option(help="Single fields to override in every run.")] = "",
    docs: Annotated[Path | None, typer.Option(help="A page whose table and figure of this part are renewed.")] = None,
) -> None:
    """Runs a part of the laboratory for staleness: short training runs on the tiny policy, compared and tested."""
    from tasks.experiments.spread import Plan, run_part
    from tasks.store import Store

    form = QUICK if quick else FULL
    plan = Plan(part, form, config or Path(form.config), jobs or os.cpu_count() or 1, overrides)
    store = plan.settings(QUESTIONS[part].arms[0]).store
    run_part(plan, log_folder(store))
    if docs is not None:
        renew_page(Store.open(store, create=False), part, docs)
        print(f"wrote {docs}")


def renew_page(store: "Store", part: str, page: Path) -> None:
    """Replaces what stands between a part's marks in a page, and the figure beside the page.

    The marks are ``<!-- part a -->`` and ``<!-- end of part a -->``.

    Raises:
        DataError: the page has no marks, or the store no result of the part.
    """
    from tasks.experiments.laboratory import FIGURE, find_parts
    from tasks.experiments.result import laboratory_markdown

    result = find_parts(store).get(part)
    if result is None:
        raise DataError(f"{store.ref.uri}: no result of part {part} in this store. Run `mu-grpo laboratory {part}`.")
    figure = page.with_suffix("") / f"{part}.svg"
    figure.parent.mkdir(exist_ok=True)
    shutil.copyfile(Path(result.folder) / FIGURE, figure)
    made = f"{laboratory_markdown(result)}\n\n![accuracy over updates]({figure.parent.name}/{figure.name})\n"
    renew(page, f"part {part}", made)


def log_folder(store: str) -> Path:
    """Where the output of every run goes: beside the artifacts, or beside the local copy of those on S3."""
    from tasks.store import Store

    return (Store.open(store).root if store.startswith("s3://") else Path(store).expanduser()) / "logs"
