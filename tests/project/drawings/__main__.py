"""Write all drawings: ``python -m tests.project.drawings``."""

from collections.abc import Callable

from tests.project import wings
from tests.project.drawings import blocks, checksum, flow, lifetime, outage, peers
from tests.project.imports import ROOT

IMAGES = ROOT / "docs" / "images"
DRAWINGS: dict[str, Callable[[], str]] = {
    "blocks.svg": blocks.draw,
    "checksum.svg": checksum.draw,
    "flow.svg": flow.draw,
    "lifetime.svg": lifetime.draw,
    "outage.svg": outage.draw,
    "peers.svg": peers.draw,
    "wings.svg": wings.draw,
}

if __name__ == "__main__":
    for name, draw in DRAWINGS.items():
        (IMAGES / name).write_text(draw())
