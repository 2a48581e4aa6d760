"""Takes pictures of a page of each kind, to be looked at.

    python scripts/docs/page_pictures.py OUT

The pages are those that tests open in a browser. OUT/runs-light-360.png and so on show the whole
page, in light and dark, as wide as a telephone and as a screen. It needs Chromium
(`apt install chromium`).
"""

import argparse
import tempfile
from itertools import product
from pathlib import Path

from bigtrk.console import exit_on_bad_input, follow, say
from bigtrk.errors import InputError
from tests.browser import CHROMIUM, Browser, browser
from tests.reports.every_page import DRAW_ALL, PAGES, PAINTED, write_pages

SCHEMES, WIDTHS = ("light", "dark"), (360, 1280)  # pixels


def take_pictures(tab: Browser, page: Path, out: Path) -> list[Path]:
    """Writes a PNG of the whole page to the folder `out` for each scheme and width, in pixels as
    the page counts them; returns their paths.
    """
    written = []
    for scheme, width in product(SCHEMES, WIDTHS):
        tab.open(page, width=width, scheme=scheme)
        tab.run(f"{DRAW_ALL}.then(() => {PAINTED})")
        written.append(out / f"{page.stem}-{scheme}-{width}.png")
        tab.picture(written[-1], whole=True)
    return written


def main() -> None:
    """Raises InputError where there is no Chromium."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("out", type=Path, metavar="OUT", help="folder for the pictures")
    out: Path = parser.parse_args().out
    if not CHROMIUM.exists():
        raise InputError(f"{CHROMIUM}: no such program; apt install chromium")
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_pages(folder)
        with browser(folder) as tab:
            for name in follow(PAGES, len(PAGES), "pages"):
                take_pictures(tab, folder / f"{name}.html", out)
    say(f"{out}: {len(PAGES) * len(SCHEMES) * len(WIDTHS)} pictures of {len(PAGES)} pages")


if __name__ == "__main__":
    exit_on_bad_input("page_pictures.py", main)
