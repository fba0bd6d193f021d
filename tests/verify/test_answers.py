import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.verify.answers import Extracted, extract


@pytest.mark.parametrize(
    ("response", "answer", "shows_working"),
    [
        (r"\boxed{42}", "42", False),
        ("  \n" + r"\boxed{42}", "42", False),
        (r"6 times 7 is \boxed{42}.", "42", True),
        (r"\boxed{12} no, \boxed{24}", "24", True),
        (r"\boxed {42}", "42", False),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}", False),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}", False),
        (r"\boxed{[0, 1\}}", r"[0, 1\}", False),  # one brace of a set alone does not close the box
        (r"\boxed{\left\{1\right.}", r"\left\{1\right.", False),
        (r"\boxed{1 \\}", r"1 \\", False),  # a line break, then the end of the box
        (r"\\\boxed{5}", "5", True),  # a line break, then a box
        (r"\\boxed{5}", None, False),  # a line break, then the word
        (r"\boxed{\boxed{5}}", r"\boxed{5}", False),
        (r"\boxed{x = \boxed{5}}", r"x = \boxed{5}", False),
        (r"so { \boxed{5}", "5", True),  # a stray brace before the box
        (r"} \boxed{5} }", "5", True),
        (r"\boxed{12} and \boxed{24", "12", False),  # truncated in its last box
        (r"\boxed{as \boxed{5} is", "5", True),
        (r"\boxed{}", "", False),
        (r"\boxed{", None, False),
        (r"\boxed", None, False),
        (r"\boxed 5", None, False),
        (r"\fbox{5}", None, False),
        (r"the answer is 42", None, False),
        ("", None, False),
        ("\\", None, False),
    ],
)
def test_table(response, answer, shows_working):
    assert extract(response) == Extracted(answer, shows_working)


PLAIN = st.text(alphabet=st.characters(exclude_characters="\\{}"), max_size=8)
BALANCED = st.recursive(
    PLAIN | st.sampled_from([r"\{", r"\}", r"\\", r"\frac"]),
    lambda inner: st.lists(inner, max_size=4).map("".join) | inner.map("{{{}}}".format),
    max_leaves=12,
)
PIECES = st.sampled_from([r"\boxed", r"\boxed{", "{", "}", "\\", " ", "\0", "\ud800", "5"])


@given(before=st.text(alphabet=st.characters(exclude_characters="\\")), answer=BALANCED, after=st.text("ab }{\n\0é"))
def test_the_last_closed_box_comes_back(before, answer, after):
    found = extract(rf"{before}\boxed{{0}} {before}\boxed{{{answer}}}{after}")
    assert found == Extracted(answer, True)
    assert extract(rf"{before}\boxed{{{answer}}}{after}").shows_working == bool(before.strip())


@given(st.text() | st.lists(PIECES).map("".join))
def test_never_raises(response):
    found = extract(response)
    assert found.answer is None or rf"{found.answer}}}" in response
    assert found.answer is not None or not found.shows_working


@pytest.mark.parametrize("pattern", ["{", "}", "{}", r"\boxed{", r"\boxed{}", r"\boxed ", r"\boxed{ ", "\\", r"\{"])
def test_a_megabyte_takes_linear_time(pattern):
    def seconds(characters: int) -> float:
        text = r"\boxed{1}\boxed{" + pattern * (characters // len(pattern)) + "}"
        start = time.process_time()
        extract(text)
        return time.process_time() - start

    # Eight times the text: quadratic time would be 64 times as long.
    assert seconds(1 << 20) < 32 * max(min(seconds(1 << 17) for _ in range(2)), 5e-3)


def test_a_megabyte_of_spaces_takes_linear_time():
    start = time.process_time()
    extract(r"\boxed" + " " * (1 << 20))
    assert time.process_time() - start < 1
