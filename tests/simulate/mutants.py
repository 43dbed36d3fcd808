"""Inject one bug at a time into the reference; simulated histories must detect it."""

import sys
import types
from pathlib import Path

import pytest

from proof.reference import acker as reference
from proof.reference import blocks as reference_blocks
from proof.reference.blocks import BlockReference
from proof.simulate import FAULTS, World
from proof.simulate.backends import ReferenceBackend
from proof.simulate.service import Service

LOOSE = Path(reference.__file__).read_text()
BLOCKS = Path(reference_blocks.__file__).read_text()
IMPORT = "from proof.reference.acker import Reference"


def mutate(patch: pytest.MonkeyPatch, loose: str = LOOSE, blocks: str = BLOCKS) -> type:
    """Return the reference, compiled from other source."""
    assert BLOCKS.count(IMPORT) == 1
    _load(patch, "mutant", loose)
    return _load(patch, "mutant_blocks", blocks.replace(IMPORT, "from mutant import Reference"))


def replace_once(source: str, old: str, new: str) -> str:
    """Return the source with a bug in the one place that has ``old``."""
    assert source.count(old) == 1, f"the reference has changed; update the mutant: {old}"
    return source.replace(old, new)


def found_by(kind: type[BlockReference], seeds: int = 120) -> int | None:
    """Return the first seed whose history has a violation; None if there is none."""
    for seed in range(seeds):
        if (
            World(seed, 40, tuple(FAULTS), lambda c, _: [ReferenceBackend(c, kind)])
            .play()
            .violation
        ):
            return seed
    return None


def without_books(patch: pytest.MonkeyPatch) -> None:
    """Compare no counters, so that a bug is detected by a reply or by a verdict."""
    patch.setattr(Service, "_balance", lambda *_: None)


def _load(patch: pytest.MonkeyPatch, name: str, source: str) -> type:
    module = types.ModuleType(name)
    patch.setitem(sys.modules, name, module)  # dataclasses look it up
    exec(compile(source, name, "exec"), module.__dict__)
    kind: type = module.__dict__["BlockReference" if name == "mutant_blocks" else "Reference"]
    return kind
