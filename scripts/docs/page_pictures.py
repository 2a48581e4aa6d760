"""Takes pictures of pages: to be looked at, or for the documentation.

    python scripts/docs/page_pictures.py OUT [PAGE...]
    python scripts/docs/page_pictures.py docs/pictures fits.html --plots 6

Without PAGE, one page of each kind is made, as tests open them. OUT/runs-light-360.png and so on
show the whole page, in light and dark, as wide as a telephone and as a screen. With `--plots 6`,
OUT/fits.png shows its first six plots. It needs Chromium (`apt install chromium`).
"""

import argparse
import tempfile
from itertools import product
from pathlib import Path

from bigtrk.console import exit_on_bad_input, follow
from bigtrk.errors import InputError
from tests.browser import CHROMIUM, Browser, browser
from tests.reports.every_page import DRAW_ALL, PAGES, PAINTED, write_pages

SCHEMES, WIDTHS = ("light", "dark"), (360, 1280)  # pixels
DRAWN = f"(typeof plots === 'object' ? {DRAW_ALL} : document.fonts.ready).then(() => {PAINTED})"
FIRST_PLOTS = """(() => {{
  const {{x, y, width}} = document.querySelector('.plots').getBoundingClientRect();
  const last = document.querySelectorAll('.plots figure')[{} - 1].getBoundingClientRect();
  return {{x, y, width, height: last.bottom - y, scale: 1}};
}})()"""


def take_pictures(tab: Browser, page: Path, out: Path) -> None:
    """Writes a PNG of the whole page to the folder `out` for each scheme and width."""
    name = page.parent.name if page.stem == "index" else page.stem
    for scheme, width in product(SCHEMES, WIDTHS):
        tab.open(page, width=width, scheme=scheme)
        tab.run(DRAWN)
        tab.picture(out / f"{name}-{scheme}-{width}.png", whole=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("out", type=Path, metavar="OUT", help="folder for the pictures")
    parser.add_argument("pages", type=Path, metavar="PAGE", nargs="*", help="of bigtrk or the site")
    parser.add_argument("--plots", type=int, metavar="N", help="only the first plots, in light")
    options = parser.parse_args()
    if not CHROMIUM.exists():
        raise InputError(f"{CHROMIUM}: no such program; apt install chromium")
    options.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as place, browser(Path(place)) as tab:
        if not options.pages:
            write_pages(Path(place))
        pages = options.pages or [Path(place) / f"{name}.html" for name in PAGES]
        for page in follow(pages, len(pages), "pages"):
            if not options.plots:
                take_pictures(tab, page, options.out)
                continue
            tab.open(page, width=WIDTHS[-1])
            tab.run(DRAWN)
            clip = tab.run(FIRST_PLOTS.format(options.plots))
            tab.picture(options.out / f"{page.stem}.png", whole=True, clip=clip)


if __name__ == "__main__":
    exit_on_bad_input("page_pictures.py", main)
