"""Hooks of the site (mkdocs.yml): pages outside of docs/, sources that pages link to, and equations.

Pages have links that work in the repository. On the site, a link to a file outside of docs/ becomes a link to a page
that shows the file. Equations become MathML, which browsers show without scripts.
"""

import html
import posixpath
import re
from pathlib import Path

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
OUTSIDE = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "images/README.md": "images.md",
}
"""Paths on the site of pages outside of docs/."""
WIDE = ("algorithms.md", "hyperparameters.md")
"""Pages with wide tables, which are shown without the table of contents."""
_LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)#\s]+)(#[^)\s]*)?(?=\))")
_MATH = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)
_NAME = re.compile(r"(?<!<span></span>)<code>[\w.:/ *-]{12,}(?=</code>)")
_LANGUAGES = {".py": "python", ".yaml": "yaml", ".json": "json", ".jsonl": "json", ".txt": "text"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages outside of docs/, and a page for every source that a page links to."""
    for path, page in OUTSIDE.items():
        files.append(File.generated(config, page, content=(ROOT / path).read_text(encoding="utf-8")))
    pages = [(file.src_uri, file.content_string) for file in files.documentation_pages()]
    waiting = sorted({found for page, text in pages for found in _sources(page, text)})
    while waiting:
        path = waiting.pop()
        uri = _site_path(path)
        if uri not in files.src_uris:
            files.append(File.generated(config, uri, content=_source_page(path)))
            if (ROOT / path).is_dir():
                waiting += [f"{path}/{one}" for one in _names(ROOT / path)]
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Replace links by links to pages of the site."""
    del config, files
    here = page.file.src_uri
    if here in WIDE:
        page.meta["hide"] = ["toc"]

    def site_link(match: re.Match[str]) -> str:
        path = _repository_path(here, match[1])
        if path is None:
            return match[0]
        return posixpath.relpath(_site_path(path), posixpath.dirname(here) or ".") + (match[2] or "")

    return markdown if here.startswith("source/") else _LINK.sub(site_link, markdown)


def on_page_content(content: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Convert equations to MathML, and allow line breaks in long names at points, slashes and underscores."""
    del page, config, files

    def mathml(match: re.Match[str]) -> str:
        shown = convert(html.unescape(match[3]).strip(), display="block" if match[2] == "[" else "inline")
        # The converter leaves no space between the name of a function and its argument.
        return shown.replace("<mi>log</mi>", '<mi>log</mi><mspace width="0.17em"/>')

    return _NAME.sub(lambda name: re.sub(r"[._/]", r"\g<0><wbr>", name[0]), _MATH.sub(mathml, content))


def _names(folder: Path) -> list[str]:
    return sorted(one.name for one in folder.iterdir() if not one.name.startswith((".", "__")))


def _repository_path(page: str, link: str) -> str | None:
    """Return the path in the repository that a link of a page points to; None if it does not exist."""
    origin = next((path for path, name in OUTSIDE.items() if name == page), f"docs/{page}")
    path = posixpath.normpath(posixpath.join(posixpath.dirname(origin), link))
    return path if (ROOT / path).exists() else None


def _site_path(path: str) -> str:
    if path in OUTSIDE:
        return OUTSIDE[path]
    return path.removeprefix("docs/") if path.startswith("docs/") else f"source/{path}.md"


def _sources(page: str, text: str) -> set[str]:
    """Return the files and folders outside of docs/ that a page links to."""
    paths = {_repository_path(page, match[1]) for match in _LINK.finditer(text)}
    return {path for path in paths if path and not path.startswith("docs/") and path not in OUTSIDE}


def _source_page(path: str) -> str:
    """Return a page that shows a file or lists a folder."""
    head = f"---\nsearch: {{exclude: true}}\nhide: [toc]\n---\n\n# `{path}`\n\n"
    here = ROOT / path
    if here.is_dir():
        folder = posixpath.basename(path)
        return head + "\n".join(f"- [`{name}`]({folder}/{name}.md)" for name in _names(here)) + "\n"
    fence = "`" * 5
    text = here.read_text(encoding="utf-8")
    return f"{head}{fence}{_LANGUAGES.get(here.suffix, 'text')}\n{text}\n{fence}\n"
