"""What a browser makes of the page of a reproduction."""

import pytest

from tests.experiments.conftest import MODELS
from tests.experiments.test_page import KINDS
from tests.report.test_page_in_browser import assert_allowed, probe


@pytest.mark.parametrize("width", [1280, 390])
def test_every_figure_is_visible_and_nothing_is_too_wide(page, tmp_path, width):
    seen = probe(page, tmp_path, width)
    assert len(seen["figures"]) == len(KINDS) * len(MODELS) + 2
    for name, wide, high in seen["figures"]:
        assert wide > 280, name
        assert high > 80, name
    assert seen["wide"] <= width


def test_the_page_allows_what_it_has(page, tmp_path):
    assert_allowed(page, tmp_path)
