"""Makes pages of the scripts in examples/, and their pictures.

    python scripts/docs/example_pages.py

A page has the text and the code of a script; `scripts/docs/hooks.py` adds them to the site. This
command runs each script that saves a picture in a temporary folder, and writes the pictures to
docs/pictures. It needs matplotlib.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from bigtrk.console import follow

ROOT = Path(__file__).parents[2]
EXAMPLES, PICTURES = ROOT / "examples", ROOT / "docs" / "pictures"
NAMES = ("first_tracks", "your_own_model", "your_own_data")  # in the order to read them
_CELL = re.compile(r"^# %%(.*)\n", re.MULTILINE)
_AXES = re.compile(r'xlabel="(\w+).*?ylabel="(\w+)')
_SAVED = re.compile(r'savefig\("(\w+\.png)"')


def example_pages() -> dict[str, str]:
    """Returns the pages of all examples, by their paths in the site."""
    return {f"examples/{name}.md": page(name) for name in NAMES}


def page(name: str) -> str:
    """Returns the page of one example: its cells, and each picture below the cell that saves it."""
    # Before the first cell is what jupytext writes for itself.
    _, *parts = _CELL.split((EXAMPLES / f"{name}.py").read_text())
    cells = [_cell(kind, text) for kind, text in zip(parts[::2], parts[1::2], strict=True)]
    return "\n".join([*cells, f"This page is `examples/{name}.py` of the checkout.\n"])


def _cell(kind: str, text: str) -> str:
    """Returns a cell as Markdown."""
    if kind.strip() == "[markdown]":
        return re.sub(r"^# ?", "", text, flags=re.MULTILINE)
    plots = ", ".join(f"{y} against {x}" for x, y in _AXES.findall(text))
    pictures = [f"\n![Plots of {plots}](../pictures/{name})\n" for name in _SAVED.findall(text)]
    return "".join([f"```python\n{text.strip()}\n```\n", *pictures])


def main() -> None:
    drawing = [name for name in NAMES if _SAVED.search((EXAMPLES / f"{name}.py").read_text())]
    for name in follow(drawing, len(drawing), "examples"):
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([sys.executable, EXAMPLES / f"{name}.py"], cwd=folder, check=True)
            for picture in Path(folder).glob("*.png"):
                (PICTURES / picture.name).write_bytes(picture.read_bytes())


if __name__ == "__main__":
    main()
