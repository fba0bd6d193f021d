"""Pages that are made from the code are those that the code makes now, and the site holds together."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.report.pages import texts
from tools import graphs
from tools.docs import DOCS
from tools.docs.pages import PARTS

RENEW = "renew it: make docs, or python -m tools.docs.pages and tools.docs.picture"


@pytest.mark.parametrize(("page", "marks"), PARTS)
def test_generated_parts_of_pages_are_up_to_date(page: str, marks: str) -> None:
    written = (DOCS / page).read_text(encoding="utf-8")
    part = written.partition(f"<!-- {marks} -->\n")[2].partition(f"<!-- end of {marks} -->")[0]
    assert part == PARTS[page, marks](), RENEW


def test_the_picture_of_the_workflow_is_up_to_date() -> None:
    kept = graphs.PICTURE.read_text(encoding="utf-8")
    assert texts(kept) == texts(graphs.picture()), "renew it: make graph"


def test_the_site_is_built_with_all_its_links_and_without_a_network(tmp_path: Path) -> None:
    command = [Path(sys.executable).parent / "mkdocs", "build", "--strict", "--site-dir", tmp_path / "site"]
    done = subprocess.run(command, cwd=DOCS.parent, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    pages = list((tmp_path / "site").rglob("*.html"))
    assert len(pages) > 25
    for page in pages:
        text = page.read_text(encoding="utf-8")
        fetched = [part.split('"', 1)[0] for part in text.split('src="')[1:]]
        assert not [place for place in fetched if "://" in place], page
        linked = [part.split('"', 1)[0].partition("#")[0] for part in text.split('href="')[1:]]
        own = [place for place in linked if not re.match(r"[a-z]+:|/", place)]  # The page 404.html has whole paths.
        assert not [place for place in own if not (page.parent / place).exists()], page
        assert "arithmatex" not in text, f"{page}: an equation was left as it is written"
