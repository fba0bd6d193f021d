"""What a browser makes of the page of a reproduction."""

import pytest

from tests.experiments.conftest import MODELS
from tests.experiments.test_page import KINDS
from tests.report.test_page_in_browser import browse, probe


def test_no_console_messages(page, tmp_path):
    (tmp_path / "page.html").write_text(page, encoding="utf-8")
    picture = tmp_path / "page.png"
    seen = browse(tmp_path / "page.html", f"--screenshot={picture}", "--window-size=1280,2000")
    assert "CONSOLE" not in seen.stderr
    assert picture.stat().st_size > 50_000


@pytest.mark.parametrize("width", [1280, 390])
def test_every_figure_is_visible_and_nothing_is_too_wide(page, tmp_path, width):
    seen = probe(page, tmp_path, width)
    assert len(seen["figures"]) == len(KINDS) * len(MODELS) + 2
    for name, (wide, high) in seen["figures"].items():
        assert wide > 280, name
        assert high > 80, name
    assert seen["wide"] <= width


def test_dark_scheme_reaches_the_figures(page, tmp_path):
    light = probe(page, tmp_path, 1280)
    dark = probe(page, tmp_path, 1280, "--blink-settings=preferredColorScheme=0")
    assert light["dark"] != dark["dark"]
    assert light["text"] != dark["text"]
