"""The colors of pages and figures."""

INK, MUTED, GRID = "#1c2330", "#5b6472", "#e1e5eb"
BLUE, ORANGE, GREEN = "#1f5fa8", "#c2500a", "#0f7b63"
PALETTE = {
    "ink": (INK, "#e6e9ef"),
    "muted": (MUTED, "#a3adbb"),
    "grid": (GRID, "#323b48"),
    "blue": (BLUE, "#6fb1ff"),
    "orange": (ORANGE, "#ff9a57"),
    "green": (GREEN, "#4fd0ad"),
}
"""Every color by name, for a light and for a dark page."""


def variable(name: str) -> str:
    """A color of the palette as the page's own; that of a light page where there is none."""
    return f"var(--{name}, {PALETTE[name][0]})"
