"""Tokens of responses that a stage learned from, and what the page shows of them."""

import re

from hypothesis import given
from hypothesis import strategies as st

from tasks.report.examples import pick_groups, token_texts
from tasks.report.step import draw_page
from tests.llama import byte_tokenizer
from tests.report.synthetic import SyntheticRun, history_of

BYTES = byte_tokenizer().backend_tokenizer
"""Has a token per byte, as the vocabularies of large models begin."""


def texts_of(ids):
    return token_texts(ids, lambda some: BYTES.decode(list(some), skip_special_tokens=False))


@given(text=st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="\ufffd"), max_size=40))
def test_texts_of_tokens_make_the_text(text):
    ids = BYTES.encode(text).ids
    texts = texts_of(ids)
    assert len(texts) == len(ids)
    assert "".join(texts) == text


def test_a_character_of_several_tokens_is_shown_at_the_last_of_them():
    ids = BYTES.encode("a漢b").ids
    assert texts_of(ids) == ["a", "", "", "漢", "b"]
    assert texts_of(ids[:-2]) == ["a", "", "\ufffd"]


def groups_of(run: SyntheticRun):
    return pick_groups(run.store, history_of(run))


def test_the_first_and_the_last_stage_show_the_update_with_vetoes(mu_grpo):
    groups = groups_of(mu_grpo)
    assert [(one["stage"], one["update"], one["staleness"]) for one, _ in groups] == [(1, 32, 31), (4, 128, 31)]
    best, worst = groups[1]
    shown = [(one["reward"], len(one["tokens"]), sum(one["vetoed"])) for one in (best, worst)]
    assert shown == [(1, 24, 0), (0, 25, 21)]
    assert [token.kind for token in worst["tokens"][:6]] == ["", "clipped", "", "trigger", "vetoed", "vetoed"]
    assert [token.text for token in worst["tokens"][:3]] == ["seven", " <b>times</b>", " 8"]
    assert worst["tokens"][3].tooltip == "ratio 1.455, log-probability -0.125 after -0.500, trigger"


def test_the_page_marks_them_and_escapes_their_text(page):
    section = page.split('<section id="tokens">')[1].split("</section>")[0]
    assert "the last stored update that vetoed a token, or else the last stored one" in section
    assert section.count('class="vetoed"') == 2 * 21 + 1  # and once where marks are explained
    assert section.count('class="trigger"') == 2 + 1
    assert "<b>times" not in page
    assert re.search(r'<span title="ratio 1.133, [^"]+, clipped" class="clipped"> &lt;b&gt;times', section)


def test_without_a_veto_the_last_update_with_examples_is_shown_and_no_trigger_marked(grpo):
    """Triggers are counted with the veto off too, and the synthetic run has some; a correction leaves tokens out."""
    groups = groups_of(grpo)
    assert [(best["stage"], best["staleness"]) for best, _ in groups] == [(1, 31), (4, 31)]
    kinds = {token.kind for group in groups for response in group for token in response["tokens"]}
    assert kinds == {"", "clipped", "rejected"}
    page, _ = draw_page(grpo.store, history_of(grpo))
    assert page.count('class="rejected"') == 2 * 2 + 1  # and once where marks are explained
