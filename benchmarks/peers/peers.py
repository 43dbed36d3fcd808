"""The peers: what each is, how it is started, and how many trees it gets."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Peer:
    """One row of the table."""

    name: str
    program: str
    """The file of its program, in this folder."""
    trees: int
    """Trees completed."""
    also: str
    """What it does besides, in a few words."""
    needs: str = ""
    """``venv`` or ``node``; '' for a peer that runs in the project's own environment."""
    speed: str = "speed"
    pending: str = "pending"

    @property
    def kept(self) -> int:
        """Trees kept pending: the same number for all peers that compare by it."""
        return self.trees if self.needs else max(self.trees, 50_000)


QUEUE = "carries and executes tasks"
NONE = "nothing else"
PEERS = (
    Peer("rq, depends_on", "rq_depends_on.py", 100, f"{QUEUE}, a fork each", "venv"),
    Peer("Celery, chord", "celery_chords.py", 1_500, f"{QUEUE}, keeps results", "venv"),
    Peer("dramatiq, group", "dramatiq_groups.py", 1_500, f"{QUEUE}, retries", "venv"),
    Peer("BullMQ, flow", "bullmq/peer.js", 5_000, f"{QUEUE}, retries, keeps jobs", "node"),
    Peer("SET of ids, one by one", "edges.py", 10_000, NONE),
    Peer("SET of ids, pipelined", "edges.py", 50_000, NONE, speed="speed_batches"),
    Peer("counter, one by one", "counter.py", 10_000, NONE),
    Peer("counter, pipelined", "counter.py", 50_000, NONE, speed="speed_batches"),
    Peer("naive XOR, one by one", "naive_xor.py", 10_000, NONE),
    Peer("naive XOR, pipelined", "naive_xor.py", 50_000, NONE, speed="speed_batches"),
    Peer("acker-redis, one by one", "acker.py", 5_000, "expires, names, fences"),
    Peer(
        "acker-redis, batches",
        "acker.py",
        *(50_000, "expires, names, fences"),
        speed="speed_batches",
    ),
    Peer(
        "acker-redis, blocks",
        "acker.py",
        *(200_000, "expires, names, fences"),
        speed="speed_blocks",
        pending="pending_blocks",
    ),
)
