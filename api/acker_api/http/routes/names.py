"""Path parameters that several routes have."""

from typing import Annotated

from fastapi import Depends, Path

from acker_redis.operate import NAME, check_anchor, check_block

Namespace = Annotated[
    str,
    Path(description="Name of a namespace", pattern=rf"^{NAME}$", examples=["orders"]),
]
_Anchor = Annotated[
    str,
    Path(
        description="Anchor of a tree: decimal, or 0x and hex digits",
        pattern=r"^(0x[0-9a-fA-F]{1,16}|[0-9]{1,19})$",
        examples=["4711"],
    ),
]


def _anchor(anchor: _Anchor) -> int:
    return check_anchor(int(anchor, 16 if anchor.startswith("0x") else 10))


Anchor = Annotated[int, Depends(_anchor)]
"""An anchor in the path; InvalidBatchError for an invalid one."""

_Block = Annotated[
    str,
    Path(description="Number of a block, decimal", pattern=r"^[0-9]{1,16}$", examples=["815"]),
]


def _block(block: _Block) -> int:
    return check_block(int(block))


Block = Annotated[int, Depends(_block)]
"""A number of a block in the path; InvalidBatchError for an invalid one."""
