"""Pending blocks: the list is in ``trees``."""

from typing import Annotated

from fastapi import APIRouter

from acker_api.acting.actions import not_pending
from acker_api.auth.tokens import Role, Who
from acker_api.http.access import require
from acker_api.http.routes.answers import READS, answers
from acker_api.http.routes.names import Block, Namespace
from acker_api.http.services import Shared
from acker_api.shapes.trees import Tree

router = APIRouter(prefix="/namespaces/{namespace}/blocks", tags=["trees"])


@router.get("/{block}", responses=answers(*READS))
async def get_block(
    services: Shared, who: Annotated[Who, require(Role.VIEWER)], namespace: Namespace, block: Block
) -> Tree:
    """Return the first tree of a pending block, and the state of the block.

    Some slots of a block may hold no tree, so the first tree need not be in slot 0.
    """
    acker = services.reader.acker(namespace)
    tree = await services.reader.read(lambda: acker.show_block(block))
    if tree is None:
        raise not_pending("block")
    edges = (await services.reader.read(acker.config)).edges
    return Tree.seen(tree, edges, who.sees_ids(namespace))
