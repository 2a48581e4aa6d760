"""Adds pages to the site: references made from the program, the examples, pages of the checkout's
root, and to the how-to pages every page of docs/adding.
"""

import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from scripts.docs.command_reference import command_reference
from scripts.docs.example_pages import example_pages
from scripts.docs.settings_reference import settings_reference

ROOT = Path(__file__).parents[2]
FROM_THE_ROOT = {"contributing.md": "CONTRIBUTING.md", "changes.md": "CHANGELOG.md"}
# How much higher the search ranks a page: above the others stands the one that explains a word.
BOOSTS = {"glossary.md": 4, "python.md": 0.25}
_INLINE = re.compile(r"(?<=<code>)[^<]*-[^<]*(?=</code>)")
_OPTION = re.compile(r"(?<![\w-])--?[a-zA-Z][\w-]*")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Adds pages to the tab "How to"; mkdocs calls it once it has read mkdocs.yml."""
    folder = Path(config.docs_dir)
    adding = [path.relative_to(folder).as_posix() for path in sorted(folder.glob("adding/*.md"))]
    for tab in config.nav or []:
        tab.get("How to", []).append({"Extend bigtrk": adding})
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds pages that are made here; mkdocs calls it before it reads any."""
    pages = {"settings.md": settings_reference(), "commands.md": command_reference()}
    pages |= example_pages()
    for name, source in FROM_THE_ROOT.items():
        pages[name] = (ROOT / source).read_text().replace("](docs/", "](")
    for name, content in pages.items():
        files.append(File.generated(config, name, content=content))
    return files


def on_page_markdown(_: str, page: Page, **__: Any) -> None:
    """Ranks a page in the site's search."""
    page.meta["search"] = {"boost": BOOSTS.get(page.file.src_uri, 1)}


def on_page_content(html: str, **_: Any) -> str:
    """Keeps browsers from breaking a line behind the hyphens of an option."""
    unbroken = r'<span class="option">\g<0></span>'
    return _INLINE.sub(lambda code: _OPTION.sub(unbroken, code[0]), html)
