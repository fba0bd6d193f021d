"""Commands for developers: they write docs and configs, measure, and support tests. The project runs without them."""

from pathlib import Path

ROOT = Path(__file__).parents[1]
