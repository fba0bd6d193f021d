"""Tables and figures of the laboratory in a page that people write."""

import re
import shutil
from pathlib import Path

from tasks.artifacts import Store
from tasks.errors import DataError
from tasks.laboratory.step import FIGURE, load_result


def renew_page(store: Store, part: str, page: Path) -> None:
    """Replaces what stands between a part's marks in a page, and the figure beside the page.

    The marks are ``<!-- part a -->`` and ``<!-- end of part a -->``.

    Raises:
        DataError: the page has no marks, or the store no result of the part.
    """
    found = [manifest for manifest in store.manifests("laboratory") if manifest.facts["part"] == part]
    if not found:
        raise DataError(f"{store.ref.uri}: no result of part {part} in this store. Run `mu-grpo laboratory {part}`.")
    result = load_result(store, found[0].ref)
    text = page.read_text(encoding="utf-8")
    marks = re.compile(rf"(<!-- part {part} -->\n).*?(<!-- end of part {part} -->)", re.DOTALL)
    if not marks.search(text):
        raise DataError(f"{page}: no marks `<!-- part {part} -->` and `<!-- end of part {part} -->`.")
    figure = page.with_suffix("") / f"{part}.svg"
    figure.parent.mkdir(exist_ok=True)
    shutil.copyfile(Path(result.folder) / FIGURE, figure)
    made = f"{result.markdown()}\n\n![accuracy over updates]({figure.parent.name}/{figure.name})\n"
    page.write_text(marks.sub(lambda match: match[1] + made + match[2], text), encoding="utf-8")


def log_folder(store: str) -> Path:
    """Where the output of every run goes: beside the artifacts, or beside the local copy of those on S3."""
    return (Store.open(store).root if store.startswith("s3://") else Path(store).expanduser()) / "logs"
