"""Commands that write the pages, pictures and the site of docs/. They run in a checkout, not in the package."""

from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
