from tasks.formats import DASH
from tests.report.pages import Outline, assert_self_contained, words
from tests.report.synthetic_rows import HOSTILE


def test_self_contained_and_responses_are_escaped(page):
    """A response is text from a model: it must not become part of the page."""
    assert_self_contained(page)
    visible = HOSTILE.replace("\x07", "\u2407")
    assert Outline(page).responses.count("\n" + visible) == 2
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert" in page


def test_the_tables_of_the_page_have_the_numbers_of_the_run(page):
    text = words(page)
    assert "33.8 % → 82.5 %" in text
    assert "+48.7 points" in text
    assert "stage 4 128 82.5 % 70.8 to 90.1 80.0 %" in text
    assert "generate sampling responses for training 76.0 33.2 %" in text
    assert "training, stage 1 262 238 11 1 512" in text
    assert "stage 1 512 0.512 1.0 % 64 11 1 3.2e-05" in text
    of_a_stage = f"{DASH} {DASH} 5.5 0.5 20.8 3.1 16.5"
    before = f"before 0.5 31.5 5.5 {DASH} {DASH} {DASH} {DASH}"
    steps = [before, *(f"stage {number} {of_a_stage}" for number in range(1, 5))]
    assert " ".join(steps) in text
