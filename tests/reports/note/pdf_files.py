"""PDF files as their readers see them: pages, fonts and texts, by the PDF reference alone."""

import re
import zlib
from pathlib import Path

A4 = (595.28, 841.89)  # points
OBJECT = re.compile(rb"(?:^|\n)(\d+) 0 obj\s(.*?)\nendobj", re.DOTALL)
STREAM = re.compile(rb"\nstream\r?\n(.*)\nendstream", re.DOTALL)
FONTS = re.compile(rb"<<\s*(?:/F\d+\s\d+\s0\sR\s*)+>>")
RANGE = re.compile(rb"<(\w+)> <(\w+)> \[(.*?)\]")
# In a content stream: the choice of a font, or a string that is shown.
SHOWN = re.compile(rb"/(F\d+)\s[\d.]+\sTf|\(((?:\\.|[^\\()])*)\)", re.DOTALL)
ESCAPES = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"b": b"\b", b"f": b"\f"}
Unicode = dict[int, str]  # the letters of each code of a font


def page_sizes(path: Path) -> list[tuple[float, float]]:
    """Lists width and height of each page."""
    raw = path.read_bytes()
    assert raw.startswith(b"%PDF-")
    assert raw.rstrip().endswith(b"%%EOF")
    pages = [body for body in _objects(path).values() if re.search(rb"/Type\s/Page\b", body)]
    assert re.search(rb"/Type\s/Pages\b.*/Count\s%d\b" % len(pages), raw, re.DOTALL)
    found = []
    for page in pages:
        box = re.search(rb"/MediaBox\s\[(.*?)\]", page, re.DOTALL)
        assert box
        _, _, width, height = map(float, box[1].split())
        found.append((width, height))
    return found


def font_kinds(path: Path) -> set[str]:
    """Names the kinds of all fonts; each is in the file, as TrueType."""
    raw = path.read_bytes()
    assert raw.count(b"/Type /FontDescriptor") == raw.count(b"/FontFile2 ") > 0
    return {kind.decode() for kind in re.findall(rb"/Subtype\s/(Type\d|CIDFontType\d)\b", raw)}


def texts(path: Path) -> list[str]:
    """Lists the texts of all pages, in the order in which they are shown."""
    objects = _objects(path)
    fonts = _fonts(objects)
    contents = map(_stream, objects.values())
    return [
        _text(shown, fonts)
        for content in contents
        if not content.startswith((b"\0\1\0\0", b"true"))  # TrueType
        for shown in re.findall(rb"\bBT\b(.*?)\bET\b", content, re.DOTALL)
    ]


def _objects(path: Path) -> dict[int, bytes]:
    return {int(number): body for number, body in OBJECT.findall(path.read_bytes())}


def _stream(body: bytes) -> bytes:
    found = STREAM.search(body)
    if found is None:
        return b""
    if b"/FlateDecode" not in body[: found.start()]:
        return found[1]
    return zlib.decompressobj().decompress(found[1])


def _fonts(objects: dict[int, bytes]) -> dict[bytes, Unicode]:
    """Reads the letters of all fonts by name."""
    [named] = [body for body in objects.values() if FONTS.match(body)]
    found = {}
    for name, number in re.findall(rb"/(F\d+)\s(\d+)\s0\sR", named):
        letters = re.search(rb"/ToUnicode\s(\d+)\s0\sR", objects[int(number)])
        assert letters, "its text can be searched and copied"
        found[name] = _letters(_stream(objects[int(letters[1])]))
    return found


def _letters(cmap: bytes) -> Unicode:
    return {
        int(first, 16) + place: bytes.fromhex(code.decode()).decode("utf-16-be")
        for first, _, codes in RANGE.findall(cmap)
        for place, code in enumerate(re.findall(rb"<(\w*)>", codes))
    }


def _text(shown: bytes, fonts: dict[bytes, Unicode]) -> str:
    text, font = "", b""
    for chosen, string in SHOWN.findall(shown):
        if chosen:
            font = chosen
            continue
        raw = re.sub(rb"\\(.)", lambda m: ESCAPES.get(m[1], m[1]), string, flags=re.DOTALL)
        codes = [int.from_bytes(raw[at : at + 2]) for at in range(0, len(raw), 2)]
        text += "".join(fonts[font][code] for code in codes)
    return text
