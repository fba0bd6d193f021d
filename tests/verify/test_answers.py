import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tasks.verify.verdicts import Extracted, extract, extract_program

PLAIN = st.text(alphabet=st.characters(exclude_characters="\\{}"), max_size=8)
BALANCED = st.recursive(
    PLAIN | st.sampled_from([r"\{", r"\}", r"\\", r"\frac"]),
    lambda inner: st.lists(inner, max_size=4).map("".join) | inner.map("{{{}}}".format),
    max_leaves=12,
)
PIECES = st.sampled_from([r"\boxed", r"\boxed{", "{", "}", "\\", " ", "\0", "\ud800", "5"])


@pytest.mark.parametrize(
    ("response", "answer", "shows_working"),
    [
        (r"6 times 7 is \boxed{42}.", "42", True),
        (r"\boxed {42}", "42", False),
        (r"\boxed{[0, 1\}}", r"[0, 1\}", False),  # one brace of a set alone does not close the box
        (r"\boxed{\left\{1\right.}", r"\left\{1\right.", False),
        (r"\boxed{1 \\}", r"1 \\", False),  # a line break, then the end of the box
        (r"\\\boxed{5}", "5", True),  # a line break, then a box
        (r"\\boxed{5}", None, False),  # a line break, then the word
        (r"\boxed{x = \boxed{5}}", r"x = \boxed{5}", False),
        (r"so { \boxed{5}", "5", True),  # a stray brace before the box
        (r"} \boxed{5} }", "5", True),
        (r"\boxed{12} and \boxed{24", "12", False),  # truncated in its last box
        (r"\boxed{as \boxed{5} is", "5", True),
        # a list in several boxes
        (r"$\boxed{2}$, $\boxed{3}$, and $\boxed{5}$", "2, 3, 5", True),
        (r"\boxed{(1,2)} \quad \text{or} \quad \boxed{\frac{3}{4}}", r"(1,2), \frac{3}{4}", False),
        (r"\boxed{\boxed{1} and \boxed{2}}", r"\boxed{1} and \boxed{2}", False),
        (r"\boxed{2}, so \boxed{3}", "3", True),
        (r"\boxed{2} \boxed{3}", "3", True),
    ],
)
def test_the_answer_is_the_last_box(response, answer, shows_working):
    assert extract(response) == Extracted(answer, shows_working)


@given(before=st.text(alphabet=st.characters(exclude_characters="\\")), answer=BALANCED, after=st.text("ab }{\n\0é"))
def test_the_last_closed_box_comes_back(before, answer, after):
    found = extract(rf"{before}\boxed{{0}}: {before}\boxed{{{answer}}}{after}")
    assert found == Extracted(answer, True)
    assert extract(rf"{before}\boxed{{{answer}}}{after}").shows_working == bool(before.strip())


@given(st.text() | st.lists(PIECES).map("".join))
def test_extraction_never_raises(response):
    found = extract(response)
    assert found.answer is None or rf"{found.answer}}}" in response
    assert found.answer is not None or not found.shows_working


@pytest.mark.parametrize(
    ("response", "answer", "shows_working"),
    [
        ("```python\nprint(1)\n```", "print(1)\n", False),
        ("so\n```python\nprint(1)\n```\nthat is it", "print(1)\n", True),
        ("```py\nprint(1)\n```", "print(1)\n", False),
        ("``` Python3 \nprint(1)\n``` ", "print(1)\n", False),
        ("```python\n1\n```\n```\n2\n```", "1\n", False),  # a block that names no language is none of Python
        ("```python\n1\n```\n```python\n2", "1\n", False),  # cut off in its last block
        ("```text\n1\n```python\n2\n```", "2\n", True),  # a block that another opens in
        ("```python\nprint('```')\n```", "print('```')\n", False),  # a fence is a whole line
        ("```python\n```", "", False),
        ("```\nprint(1)\n```", None, False),
        ("```python print(1)```", None, False),
        (" ```python\nprint(1)\n ```", None, False),
        (r"\boxed{1}", None, False),
    ],
)
def test_the_program_is_the_last_code_block(response, answer, shows_working):
    assert extract_program(response) == Extracted(answer, shows_working)


@given(before=st.text(), program=st.text().filter(lambda text: "```" not in text))
def test_the_last_block_comes_back(before, program):
    found = extract_program(f"{before}\n```\n```python\n0\n```\n```python\n{program}\n```\n")
    assert found.answer in (f"{program}\n", "0\n")
    assert found.answer == f"{program}\n" or "```" in before


@pytest.mark.parametrize(
    ("find", "begin", "pattern"),
    [(extract, r"\boxed", " "), (extract, r"\boxed{1}", r", \boxed{2}")]
    + [(extract, r"\boxed{1}\boxed{", pattern) for pattern in ("{", "}", "{}", r"\boxed{", r"\boxed ", "\\", r"\{")]
    + [(extract_program, "```python\n", pattern) for pattern in ("```", "```\n", "\n```python\n", "\n`")],
)
def test_a_megabyte_takes_linear_time(find, begin, pattern):
    def seconds(characters: int) -> float:
        text = begin + pattern * (characters // len(pattern)) + "}\n```"
        start = time.process_time()
        find(text)
        return time.process_time() - start

    # Eight times the text: quadratic time would be 64 times as long.
    assert seconds(1 << 20) < 32 * max(min(seconds(1 << 17) for _ in range(2)), 5e-3)
