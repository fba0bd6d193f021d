"""Makers of the pages, pictures and site of docs/. No part of the package: they are run from a checkout."""

from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
