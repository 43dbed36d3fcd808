"""Bugs, put into the source of the reference one at a time, and histories that must find them."""

import sys
import types
from pathlib import Path

import pytest

from acker_redis.reference import acker as reference
from acker_redis.reference import blocks as reference_blocks
from acker_redis.reference.blocks import BlockReference
from acker_redis.simulate import FAULTS, World
from acker_redis.simulate.backends import ReferenceBackend

LOOSE = Path(reference.__file__).read_text()
BLOCKS = Path(reference_blocks.__file__).read_text()
IMPORT = "from acker_redis.reference.acker import Reference"


def mutate(patch: pytest.MonkeyPatch, loose: str = LOOSE, blocks: str = BLOCKS) -> type:
    """The reference with other source."""
    assert BLOCKS.count(IMPORT) == 1
    _load(patch, "mutant", loose)
    return _load(patch, "mutant_blocks", blocks.replace(IMPORT, "from mutant import Reference"))


def replace_once(source: str, old: str, new: str) -> str:
    """The source with a bug in the one place where it can be."""
    assert source.count(old) == 1, "the reference has changed; say the mutant anew"
    return source.replace(old, new)


def found_by(kind: type[BlockReference], seeds: int, blocks: str = "some") -> int | None:
    """The first seed whose history finds a violation."""
    for seed in range(seeds):
        world = World(
            seed, 40, tuple(FAULTS), lambda c, _: ReferenceBackend(c, kind), blocks=blocks
        )
        if world.play().violation:
            return seed
    return None


def _load(patch: pytest.MonkeyPatch, name: str, source: str) -> type:
    module = types.ModuleType(name)
    patch.setitem(sys.modules, name, module)  # dataclasses look it up
    exec(compile(source, name, "exec"), module.__dict__)
    kind: type = module.__dict__["BlockReference" if name == "mutant_blocks" else "Reference"]
    return kind
