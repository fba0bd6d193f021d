"""Looks into pages and their figures."""

import html
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path

SVG = "{http://www.w3.org/2000/svg}"


def figures_of(report: Path) -> dict[str, str]:
    return {path.stem: path.read_text(encoding="utf-8") for path in sorted(report.glob("figures/*.svg"))}


def paths(svg: str, color: str) -> list[str]:
    """What is drawn or filled in a color of the palette, but for markers."""
    drawn = ET.fromstring(svg).iter(f"{SVG}path")
    return [one.get("d", "") for one in drawn if f"var(--{color}," in one.get("style", "")]


def texts(svg: str) -> list[str]:
    return ["".join(one.itertext()) for one in ET.fromstring(svg).iter(f"{SVG}text")]


class Outline(HTMLParser):
    """Tags with their attributes, and the text of every <pre>."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.responses: list[str] = []
        self.open: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag == "pre":
            self.responses.append("")
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "pre":
            self.responses[-1] += data


def words(page: str) -> str:
    """The text of a page, with one blank between words."""
    return " ".join(html.unescape(re.sub("<style>.*?</style>|<[^>]*>", " ", page, flags=re.DOTALL)).split())


def assert_self_contained(page: str) -> None:
    """Every tag is closed, there is no script, and nothing is loaded from elsewhere."""
    outline = Outline(page)
    assert outline.open == []
    loading = {"script", "link", "iframe", "object", "embed", "img", "image", "form"}
    assert not {tag for tag, _ in outline.tags} & loading
    for tag, attributes in outline.tags:
        for name in ("src", "href", "xlink:href", "action"):
            assert (attributes.get(name) or "#").startswith("#"), (tag, attributes)
        assert not [name for name in attributes if name.startswith("on")]
    assert not re.search(r"@import|url\((?!#)", page)
