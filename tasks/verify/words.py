"""Answers in words, such as Monday, no solution, 3:05 and A,C, which are compared without math-verify."""

import re

FUNCTIONS = "arcsin|arccos|arctan|sinh|cosh|tanh|sin|cos|tan|cot|sec|csc|ln|log|exp|sqrt"
"""Names of functions, as a regular expression."""
_LONGEST_WORDS = 400
_WRAPPED = re.compile(
    r"\\(?:text|textbf|textit|textrm|textnormal|mathrm|mathbf|mathit|mbox|hbox|rm|bf|it|displaystyle|boxed)(?![a-zA-Z])"
    r"|\\[()]|[{}$]"
)
_BETWEEN = re.compile(r"\s*(?:[,;]|(?<![^\s])(?:and|or)(?![^\s]))\s*")
_LETTERS = re.compile(r"[^\W\d_]+(?:[ '\-./]+[^\W\d_]+)*\.?")
_MIXED = re.compile(r"(?=.*[^\W\d_])[\w ,;.:'()/-]+")
_TIME = re.compile(r"(\d{1,2})(:[0-5]\d)?(:[0-5]\d)?(?: ?([ap])\.? ?m\.?)?")
_ARTICLE = re.compile(r"^(?:an?|the) (?=\w)")
_NO_WORDS = frozenset(FUNCTIONS.split("|"))


def is_word(text: str) -> bool:
    """Return True if letters are words; False for a product of variables, such as xyz, abc and mgh."""
    return any(
        run == "no"
        or (
            len(run) > 2
            and any(letter in "aeiou" for letter in run)
            and "".join(sorted(run)) not in "abcdefghijklmnopqrstuvwxyz"
            and run not in _NO_WORDS
        )
        for run in re.findall(r"[^\W\d_]+", text.lower())
    )


def plain_text(text: str) -> str:
    """Return an answer without commands for text, braces and dollar signs, and with single spaces."""
    return " ".join(_WRAPPED.sub(" ", text.replace("~", " ")).replace("\\ ", " ").split())


_SETS = (
    (re.compile(r"(?:the set of )?(?:all|any) real(?:s| numbers?| values?)?(?: (?:of )?[a-z])?"), r"\mathbb{R}"),
    (re.compile(r"(?:there (?:is|are) )?no (?:real )?solutions?(?: exists?)?|(?:the )?empty set"), r"\emptyset"),
)


def without_named_sets(text: str) -> str:
    """Return the sign of a set that an answer names in words, as for all real numbers; else the answer."""
    name = plain_text(text).lower().rstrip(" .")
    return next((sign for pattern, sign in _SETS if pattern.fullmatch(name)), text)


def mixed_text(text: str) -> str | None:
    """Return letters, digits and punctuation as plain text, as June 20 and A,C; None if there is other content."""
    plain = re.sub(" ?([,;]) ?", r"\1", plain_text(text))
    return plain if _MIXED.fullmatch(plain) else None


def _time(item: str) -> str | None:
    """Return a time of day in one notation; None for other items, and for 2:30, which can be a ratio."""
    if (found := _TIME.fullmatch(item)) is None or not (":0" in item or found[4]):
        return None
    hour, minutes, seconds, half = found.groups(default="")
    return f"{hour}{minutes or ':00'}{seconds}{half}"


def words(text: str) -> tuple[str, ...] | None:
    """Return the items of an answer in words, in alphabetical order; None if an item has other content.

    A time of day such as 3:05 and 2 p.m. counts as a word, because it is not a ratio. An article does not count.
    """
    if len(text) > _LONGEST_WORDS or (":0" not in text and not any(map(str.isalpha, text))):
        return None
    plain = plain_text(text).lower()
    if "\\" in plain:
        return None
    parts = [_ARTICLE.sub("", item.strip(" .")) for item in _BETWEEN.split(plain) if item.strip(" .")]
    times = {item: _time(item) for item in parts}
    if not all(time or _LETTERS.fullmatch(item) for item, time in times.items()):
        return None
    if not any(time or is_word(item) for item, time in times.items()):
        return None
    return tuple(sorted(times[item] or item for item in parts))
