"""Commands that write the pages, pictures and the site of docs/. They run in a checkout, not in the package."""

from tools import ROOT

DOCS = ROOT / "docs"
