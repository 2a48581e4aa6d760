"""Draws the picture of the README: an event in sectors, and the losses of two trainings.

    bigtrk simulate events --events 5 --particles 1000
    bigtrk build events graphs
    bigtrk partition graphs sectors --parts 4 --method wedges
    bigtrk train data.train=graphs SETTINGS
    torchrun --nproc-per-node 2 -m bigtrk train data.train=sectors training.routing=stored SETTINGS
    python scripts/docs/halo_picture.py sectors runs/0001 runs/0002

SETTINGS: model.hidden=32 model.layers=4 model.precision=fp32 optimizer.lr=0.003 training.epochs=5.
"""

import argparse
from pathlib import Path

import torch
from torch import Tensor

from bigtrk.console import exit_on_bad_input
from bigtrk.graphs.event_graph import Sector
from bigtrk.graphs.storage.sector_folder import SectorFolder
from bigtrk.records.run_folder import read_run
from scripts.results import CHECKOUT

PICTURE = CHECKOUT / "docs" / "pictures" / "halo.svg"
COLOURS = ("#3b6fb6", "#d1803b", "#4a9a68", "#9467a8")
LARGEST_Z, LARGEST_R = 300.0, 1050.0  # mm; only hits of the barrel are drawn
CENTRE, SCALE = 200.0, 185.0 / LARGEST_R


def draw(sectors: list[Sector], whole: list[float], cut: list[float]) -> str:
    """Returns the picture as SVG."""
    worst = max(abs(a - b) / a for a, b in zip(whole, cut, strict=True))
    parts = [part for sector in sectors for part in _sector(sector)]
    return "\n".join(
        [
            '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 900 440" font-family="sans-serif"'
            ' font-size="14" fill="#222">',
            '<rect width="900" height="440" fill="#fff"/>',
            *sorted(parts, key=lambda part: "circle" in part),
            '<text x="200" y="405" text-anchor="middle">An event in four sectors, across the beam.'
            '</text><text x="200" y="425" text-anchor="middle">Ringed: hits that two sectors have, '
            "the halo.</text>",
            *_losses(whole, cut),
            '<text x="660" y="405" text-anchor="middle">The loss of each step: whole (line), in '
            "sectors (dots).</text>"
            '<text x="660" y="425" text-anchor="middle">'
            f"Largest relative difference: {worst:.0e}, of rounding.</text>",
            "</svg>\n",
        ]
    )


def _sector(sector: Sector) -> list[str]:
    """Returns the edges that a sector owns as a path, and its halo as circles."""
    columns = [sector.node_feature_names.index(name) for name in ("r", "phi", "z")]
    r, phi, z = sector.node_features[:, columns].T
    shown = (z.abs() < LARGEST_Z) & (r < LARGEST_R)
    place = CENTRE + SCALE * r * torch.stack([phi.cos(), -phi.sin()])  # [2, N]
    source, destination = sector.edge_index[:, sector.owns_edge]
    kept = shown[source] & shown[destination]
    lines = "".join(
        f"M{_point(place[:, a])}L{_point(place[:, b])}"
        for a, b in zip(source[kept].tolist(), destination[kept].tolist(), strict=True)
    )
    colour = COLOURS[sector.part]
    halo = torch.arange(sector.n_nodes) >= sector.n_owned
    rings = (place[:, row] for row in (halo & shown).nonzero().flatten().tolist())
    return [f'<path d="{lines}" stroke="{colour}" stroke-width="0.7" fill="none"/>'] + [
        f'<circle cx="{at[0]:.0f}" cy="{at[1]:.0f}" r="3.5" fill="none" stroke="#c0182b"/>'
        for at in rings
    ]


def _point(at: Tensor) -> str:
    return f"{at[0]:.0f} {at[1]:.0f}"


def _losses(whole: list[float], cut: list[float]) -> list[str]:
    """Returns axes and both series; the vertical axis begins at 0."""
    top = max(whole)

    def at(step: int, loss: float) -> tuple[float, float]:
        return 470 + 390 * step / (len(whole) - 1), 360 - 330 * loss / top

    line = " ".join("{:.1f},{:.1f}".format(*at(*each)) for each in enumerate(whole))
    dots = (at(*each) for each in enumerate(cut))
    return [
        '<path d="M470 20V360H870" stroke="#222" fill="none"/>',
        '<text x="870" y="378" text-anchor="end">step</text>',
        f'<text x="464" y="34" text-anchor="end">{top:.1f}</text>',
        '<text x="464" y="364" text-anchor="end">0</text>',
        f'<polyline points="{line}" fill="none" stroke="{COLOURS[0]}" stroke-width="2"/>',
        *(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{COLOURS[1]}"/>' for x, y in dots),
    ]


def _recorded(run: Path) -> list[float]:
    return [step.loss for step in read_run(run).steps if step.loss is not None]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("sectors", type=Path, help="folder of sectors, of whose first event")
    parser.add_argument("whole", type=Path, help="run on whole graphs")
    parser.add_argument("cut", type=Path, help="run in those sectors")
    options = parser.parse_args()
    folder = SectorFolder(options.sectors)
    event = folder.events[0]
    sectors = [folder.read(event, part, len(COLOURS)) for part in range(len(COLOURS))]
    PICTURE.write_text(draw(sectors, _recorded(options.whole), _recorded(options.cut)))


if __name__ == "__main__":
    exit_on_bad_input("halo_picture.py", main)
