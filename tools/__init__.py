"""Commands that measure, draw and generate what docs and configs hold; the project runs without them."""

from pathlib import Path

ROOT = Path(__file__).parents[1]
