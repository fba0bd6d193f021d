"""Formats of numbers and texts for the page, the figures and the terminal."""

import re
from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tasks.evaluate.statistics import Interval

DASH = "–"  # noqa: RUF001 - a dash in a table
MINUS = "−"  # noqa: RUF001 - as wide as a plus
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def percent(fraction: float | None, digits: int = 1) -> str:
    """Return a fraction in percent: ``0.849`` is ``84.9 %``."""
    return DASH if fraction is None else f"{100 * fraction:.{digits}f} %"


def share(estimate: "Interval | None") -> str:
    """Return an estimated share in percent, without its interval."""
    return percent(estimate.value if estimate else None)


def share_with_interval(estimate: "Interval") -> str:
    """Return an estimated share in percent with its interval: ``84.9 % (83.0 to 86.7)``."""
    return f"{percent(estimate.value)} ({percent_range(estimate.low, estimate.high)})"


def points(difference: float) -> str:
    """Return a difference of fractions in percentage points: ``0.012`` is ``+1.2``."""
    return f"{round(100 * difference, 1) + 0.0:+.1f}".replace("-", MINUS)


def points_with_interval(difference: "Interval") -> str:
    """Return a difference of shares in percentage points with its interval: ``+1.2 (+0.3 to +2.1)``."""
    return f"{points(difference.value)} ({points(difference.low)} to {points(difference.high)})"


def format_saving(seconds: float) -> str:
    """Return saved seconds as text, with a minus sign if they are negative, but never before a zero."""
    return number(round(seconds, 1) + 0.0).replace("-", MINUS)


def percent_range(low: float, high: float) -> str:
    """Return two fractions in percent, without the percent sign: ``83.0 to 86.7``."""
    return f"{100 * low:.1f} to {100 * high:.1f}"


def number(value: float | None, digits: int = 1) -> str:
    """Return a number with thousands separators."""
    if value is None:
        return DASH
    return f"{value:,}" if isinstance(value, int) else f"{value:,.{digits}f}"


def pluralize(count: int, noun: str) -> str:
    """Return a count with its noun: ``1 file``, ``2 files``, ``no files``."""
    return f"{count or 'no'} {noun}{'' if count == 1 else 's'}"


def scientific(value: float | None) -> str:
    """Return a small number in scientific notation: ``3.2e-05``."""
    return DASH if value is None else f"{value:.1e}" if value else "0"


def duration(seconds: float) -> str:
    """Return seconds in the two units that fit: ``8.4 s``, ``4 min 12 s``, ``3 h 05 min``."""
    if seconds < 99.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60:02d} min"


def label(name: str) -> str:
    """Return a field's name as words: ``warm_start`` is ``warm start``."""
    return name.replace("_", " ")


def first_names(names: list[str], most: int) -> str:
    """Return the first ``most`` names, and the number of the other names."""
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + rest


def shorten(text: str, longest: int = 80) -> str:
    """Return a text of at most ``longest`` characters; one that was cut ends with three dots."""
    return text if len(text) <= longest else f"{text[: longest - 3]}..."


def visible(text: str) -> str:
    """Return a text with visible control characters, which would change colors or the title of a terminal."""
    return _CONTROL.sub(lambda found: chr(0x2400 + ord(found[0])) if found[0] < " " else ascii(found[0])[1:-1], text)


def printable(text: str) -> str:
    """Return a text with visible control characters; a text of more than 1600 characters is cut in the middle."""
    text = visible(text)
    return text if len(text) <= 1600 else f"{text[:800]}\n[... {len(text) - 1600} characters ...]\n{text[-800:]}"


def moment(seconds: float) -> str:
    """Return Unix seconds as a local time with its zone: ``2026-05-31 18:04:12 +0200``."""
    return datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d %H:%M:%S %z")
