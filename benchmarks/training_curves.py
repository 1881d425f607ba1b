"""The losses of a graph convolutional and a graph attention network on a graph of real size, as an SVG picture.

Run with `python -m benchmarks.training_curves 100000 30 docs/pictures/graph_training.svg`.
"""

from __future__ import annotations

import importlib.util
import sys
import time
from pathlib import Path

import torch

EXAMPLE = Path(__file__).parents[1] / "examples" / "graph_networks.py"
WIDTH, HEIGHT, MARGIN = 640, 300, 48
COLOURS = {"GCN": "#2b6cb0", "GAT": "#c05621"}


def curves(nodes: int, epochs: int) -> dict[str, list[float]]:
    spec = importlib.util.spec_from_file_location("graph_networks", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    torch.manual_seed(0)
    edges, label, x = example.communities(nodes)
    found = {}
    for name, net in example.networks(edges, nodes).items():
        began = time.perf_counter()
        found[name], accuracy = example.train(net, x, label, epochs)
        seconds = (time.perf_counter() - began) / epochs
        print(f"{name}: {found[name][0]:.3f} -> {found[name][-1]:.3f}, {accuracy:.1%} right, {seconds:.2f} s an epoch")
    return found


def picture(found: dict[str, list[float]], title: str) -> str:
    highest = max(max(losses) for losses in found.values())
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        f'<text x="{MARGIN}" y="20">{title}</text>',
        f'<path d="M{MARGIN} {MARGIN} V{HEIGHT - MARGIN} H{WIDTH - MARGIN}" fill="none" stroke="#444"/>',
        f'<text x="{WIDTH / 2}" y="{HEIGHT - 12}" text-anchor="middle">epoch</text>',
        f'<text x="{MARGIN - 6}" y="{MARGIN + 4}" text-anchor="end">{highest:.1f}</text>',
        f'<text x="{MARGIN - 6}" y="{HEIGHT - MARGIN + 4}" text-anchor="end">0</text>',
    ]
    for number, (name, losses) in enumerate(found.items()):
        across, down = (WIDTH - 2 * MARGIN) / max(1, len(losses) - 1), (HEIGHT - 2 * MARGIN) / highest
        points = " ".join(f"{MARGIN + k * across:.1f},{HEIGHT - MARGIN - y * down:.1f}" for k, y in enumerate(losses))
        lines.append(f'<polyline points="{points}" fill="none" stroke="{COLOURS[name]}" stroke-width="2"/>')
        place = f'x="{WIDTH - MARGIN}" y="{MARGIN + 16 * number}" text-anchor="end"'
        lines.append(f'<text {place} fill="{COLOURS[name]}">{name}</text>')
    return "\n".join([*lines, "</svg>", ""])


def main() -> None:
    nodes, epochs, path = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])
    title = f"Loss on half of {nodes:,} nodes with {10 * nodes:,} edges"
    path.write_text(picture(curves(nodes, epochs), title))


if __name__ == "__main__":
    main()
