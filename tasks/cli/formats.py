"""How sizes and moments are written in the terminal."""

from datetime import datetime


def size(count: float) -> str:
    """Bytes in the unit that fits: ``512 B``, ``3.0 MiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def moment(seconds: float) -> str:
    """Unix seconds as a local time: ``2026-05-31 18:04:12``."""
    return datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d %H:%M:%S")
