"""MkDocs' hooks, which add to the pages of docs/ those of the repository's root, and source files that are linked.

Links in docs/ are those of the repository, where GitHub and editors follow them. On the site, README is the front page,
and a linked source file or folder is a page of its own below `source/`, so that the site needs no repository beside it.
"""

from __future__ import annotations

import hashlib
import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
}
MERMAID = re.compile(r"^```mermaid\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# Markdown's links, its references below a table, and HTML's links in it
LINK = re.compile(r'(\]\(|^\[[^\]\n]+\]: |(?:src|href|srcset)=")(?!\w+:|#)([^)"#\s]+)', re.MULTILINE)
HIGHLIGHTED = {".py": "python", ".yaml": "yaml", ".yml": "yaml", ".toml": "toml"}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    pages = {ROOT / path for path in PAGES} | {Path(file.abs_src_path) for file in files.documentation_pages()}
    for path in PAGES:
        files.append(File.generated(config, PAGES[path], content=(ROOT / path).read_text(encoding="utf-8")))
    waiting = sorted(pages)
    while waiting:  # a page of source may link to more of it
        path = waiting.pop()
        for target in linked(path) if path.suffix == ".md" else ():
            uri = site_uri(target)
            if uri.startswith("source/") and uri not in files.src_uris:
                files.append(File.generated(config, uri, content=source(target)))
                waiting.append(target)
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """The page with the site's links in place of the repository's, and drawn diagrams in place of their source."""
    path = origin(page.file.src_uri)
    start = posixpath.dirname(page.file.src_uri) or "."

    def replaced(match: re.Match[str]) -> str:
        return match[1] + posixpath.relpath(site_uri((path.parent / match[2]).resolve()), start)

    if is_listing(path):
        return markdown
    return LINK.sub(replaced, MERMAID.sub(lambda block: f"![Diagram]({picture(path.parent, block[1])})", markdown))


def picture(folder: Path, source: str) -> str:
    """The drawn diagram's path from a page's folder; `docs.diagrams` draws it, which MkDocs cannot import."""
    name = hashlib.sha256(source.encode()).hexdigest()[:12]
    return posixpath.relpath(ROOT / "docs/images" / f"diagram-{name}.svg", folder)


def linked(path: Path) -> list[Path]:
    links = [(path.parent / match[2]).resolve() for match in LINK.finditer(path.read_text(encoding="utf-8"))]
    return [target for target in links if target.exists() and target.is_relative_to(ROOT)]


def site_uri(path: Path) -> str:
    """Where a file of the repository lies among the site's sources."""
    uri = path.relative_to(ROOT).as_posix()
    if uri in PAGES:
        return PAGES[uri]
    if uri.startswith("docs/") and path.is_file() and path.suffix != ".py":
        return uri.removeprefix("docs/")
    return f"source/{uri}" if path.suffix == ".md" else f"source/{uri}.md"


def origin(uri: str) -> Path:
    """The file of the repository that a page of the site was made from: `site_uri` turned round."""
    for path, page in PAGES.items():
        if uri == page:
            return ROOT / path
    if not uri.startswith("source/"):
        return ROOT / "docs" / uri
    path = ROOT / uri.removeprefix("source/")
    return path if path.is_file() else path.with_suffix("")


def is_listing(path: Path) -> bool:
    return path.suffix != ".md"


def source(path: Path) -> str:
    """A page that shows a file, or names a folder's."""
    if path.suffix == ".md":
        return path.read_text(encoding="utf-8")
    heading = f"# {path.relative_to(ROOT).as_posix()}\n\n"
    if path.is_dir():
        return heading + "\n".join(f"- `{inner.name}`" for inner in sorted(path.iterdir()) if inner.name[0] not in "._")
    text = path.read_text(encoding="utf-8")
    return f"{heading}~~~~ {{ .{HIGHLIGHTED.get(path.suffix, 'text')} }}\n{text}\n~~~~\n"
