"""Checks plain English: how long sentences are, and turns of phrase that stop readers.

python scripts/docs/wording.py [--report] [FILE ...]

README.md and the pages of docs/ that mkdocs.yml lists under no tab of UNLIMITED keep to the limits
of length. Patterns are looked for in all pages, docstrings, help and messages.
"""

import argparse
import ast
import os
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles

import yaml

ROOT = Path(__file__).parents[2]
PACKAGES = ("bigtrk", "partition", "scripts", "tests", "examples")
UNLIMITED = ("Reference", "Explanation")
MEDIAN, LONGEST = 14, 28

# Not part of a page's sentences, in this order: comments and markers of results, code, headings,
# tables, references made from docstrings, pictures. Code within a line counts as one word.
_LEFT_OUT = re.compile(
    r"<!--.*?-->|^ *```.*?^ *```|^#.*?$|^ *\|.*?$|^:::.*?(?=\n\n)|!\[.*?\]\(.*?\)"
    r"|(?<=\n\n) {4}[^*\n-].*?(?=\n\n|\Z)",
    re.DOTALL | re.MULTILINE,
)
_BLOCK = re.compile(r"(?:^|\n\s*\n|\n(?=\s*(?:[*-]|\d+\.) ))")
_END = re.compile(r"(?<!e\.g\.)(?<!i\.e\.)(?<! al\.)(?<!\.\.\.)(?<=[.!?])[*)\"']*\s+")

# What no text has.
_ANYWHERE = re.compile(
    r"\b(?:that which|so many|so probably|as read again|seen to|go(?:es)? nowhere"
    r"|(?:is|are) (?:told(?! apart)|said(?! to))|but for|how many times as|what goes on"
    r"|beside(?=[.,;)]|$)|(?:by|for|from|in|of|outside|to|with) what (?:has|is|was|were))\b",
    re.IGNORECASE,
)
# How no sentence begins: a clause for a noun, a verb before its subject.
_OPENING = re.compile(
    r"(?:What|Who|That which) (?:is|are|was|has) [^?]*$|(?:Not )?\w+ed (?:is|are) "
)
# How no docstring begins.
_DOCSTRING = re.compile(
    r"(?:Says|Tells|What|That|Which|Whose|About|Above|After|Against|Among|As|At|Before|Behind|Below"
    r"|Beside|Between|Beyond|But|By|During|For|From|In|Inside|Into|Of|On|Out|Over|Per|Since|Through"
    r"|To|Towards|Under|Until|Upon|With|Within|Without)\b"
)


@dataclass(frozen=True)
class Sentence:
    """A sentence and the line at which it begins."""

    line: int
    text: str

    @property
    def words(self) -> int:
        """Counts words; code, whatever its length, is one."""
        return sum(any(map(str.isalnum, word)) for word in self.text.split())


def sentences(page: str) -> Iterator[Sentence]:
    """Yields the sentences of a page in Markdown; an item of a list ends one, too."""
    text = _LEFT_OUT.sub(lambda found: "\n" * found[0].count("\n"), page)
    for start, block in _pieces(text, _BLOCK):
        for offset, sentence in _pieces(block, _END):
            plain = re.sub(r"`[^`]*`", "code", sentence)
            plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", plain)
            plain = re.sub(r"^\s*(?:[*-]|\d+\.) |\*\*", "", plain)
            if plain.strip():
                blank = len(sentence) - len(sentence.lstrip())
                line = text[: start + offset + blank].count("\n") + 1
                yield Sentence(line, " ".join(plain.split()))


def _pieces(text: str, between: re.Pattern[str]) -> Iterator[tuple[int, str]]:
    start = 0
    for found in between.finditer(text):
        yield start, text[start : found.start()]
        start = found.end()
    yield start, text[start:]


def break_of(text: str) -> str | None:
    """Returns the words of a sentence that fit a pattern of no text, if any."""
    found = _ANYWHERE.search(text) or _OPENING.match(text)
    return found[0][:40] if found else None


def breaks_of_page(page: str, limited: bool) -> Iterator[tuple[int, str, str]]:
    """Yields the line of each break, what is wrong, and the sentence."""
    found = list(sentences(page))
    for one in found:
        if words := break_of(one.text):
            yield one.line, f"'{words}'", one.text
        if limited and one.words > LONGEST:
            yield one.line, f"{one.words} words, more than {LONGEST}", one.text
    middle = median(one.words for one in found) if found else 0
    if limited and middle > MEDIAN:
        yield 1, f"{middle:g} words in the median, more than {MEDIAN}", "(the whole page)"


def breaks_of_module(source: str) -> Iterator[tuple[int, str, str]]:
    """Yields the same of docstrings, and of all other texts of four words and more."""
    nodes = list(ast.walk(ast.parse(source)))
    docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if not (isinstance(node, ast.Constant) and isinstance(node.value, str)):
            continue
        text = " ".join(node.value.split())
        is_docstring = id(node) in docstrings
        beginning = _DOCSTRING.match(text) if is_docstring else None
        if beginning:
            yield node.lineno, f"begins with '{beginning[0]}'", text
        for sentence in _END.split(text) if is_docstring or text.count(" ") > 2 else ():
            if words := break_of(sentence):
                yield node.lineno, f"'{words}'", sentence


def unlimited(root: Path) -> set[Path]:
    """Lists the pages that the navigation has under Reference and Explanation."""
    nav = yaml.safe_load((root / "mkdocs.yml").read_text())["nav"]
    tabs = [page for tab in nav for name, page in tab.items() if name in UNLIMITED]
    return {root / "docs" / name for tab in tabs for page in tab for name in page.values()}


def texts(root: Path) -> Iterator[Path]:
    """Yields all pages and modules of the checkout."""
    yield from sorted(root.glob("*.md"))
    yield from sorted(root.glob("docs/**/*.md"))
    for package in PACKAGES:
        yield from sorted(root.glob(f"{package}/**/*.py"))


def report(pages: list[Path]) -> None:
    """Prints the lengths of the sentences of each page."""
    print(f"{'page':40}{'sentences':>10}{'median':>8}{'90 %':>6}{'longest':>9}")
    for path in pages:
        lengths = [one.words for one in sentences(path.read_text())]
        if len(lengths) > 1:
            ninth, name = (
                quantiles(lengths, n=10, method="inclusive")[-1],
                str(path.relative_to(ROOT)),
            )
            row = f"{median(lengths):8g}{ninth:6.0f}{max(lengths):9}"
            print(f"{name:40}{len(lengths):10}{row}")


def main() -> int:
    """Prints lengths or breaks; returns 1 where there are breaks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--report", action="store_true", help="print the lengths of sentences")
    parser.add_argument("files", metavar="FILE", type=Path, nargs="*", help="all without one")
    asked = parser.parse_args()
    files = [path.resolve() for path in asked.files] or list(texts(ROOT))
    free = unlimited(ROOT) | {ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md"}
    pages = [path for path in files if path.suffix == ".md"]
    if asked.report:
        report(pages)
        return 0
    count = 0
    for path in sorted(set(files) - {Path(__file__).resolve()}):
        is_page, text = path in pages, path.read_text()
        found = breaks_of_page(text, path not in free) if is_page else breaks_of_module(text)
        for line, wrong, sentence in found:
            count += 1
            print(f"{os.path.relpath(path, ROOT)}:{line}: {wrong}: {sentence}")
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
