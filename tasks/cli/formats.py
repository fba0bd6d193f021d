"""How moments and lists are written in the terminal."""

from datetime import datetime


def moment(seconds: float) -> str:
    """Unix seconds as a local time: ``2026-05-31 18:04:12``."""
    return datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def some(names: list[str], most: int) -> str:
    """The first of many names, and how many more there are."""
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + rest
