"""What a client does after each error code of a server, from Redis 6.2 to Valkey 9. No I/O.

The codes of the scripts (``ACKER <CODE>``) are those of ``lua/README.md``; this table has those of
the server itself. ``python -m proof.spec`` writes it to ``docs/reference/errors.md``, and lists of
them to the clients in other languages.
"""

from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple


class Treatment(StrEnum):
    """What a client does after an error code."""

    FOLLOWED = "followed"
    """The Redis client, or this one, sends the call to another node, or with the source."""
    RETRIED = "retried"
    """The state passes by itself. A call is retried for ``retry_for``, a batch while its fence
    holds, under its number; as after a lost reply."""
    PATIENT = "patient"
    """A refusal that may pass: sources free memory, or an operator rotates a password. It is raised
    at once before the client has read the namespace. After that a batch is retried as above."""
    REFUSED = "refused"
    """A lasting refusal: it is raised, and a batch is given up."""


class Code(NamedTuple):
    """An error code of a server."""

    treatment: Treatment
    when: str
    """When a server replies it."""
    leave: bool = False
    """Whether the client also closes its connections: only a new one can succeed, because the
    address may lead to another master by now, or because only a new one authenticates."""


FOLLOWED, RETRIED, PATIENT, REFUSED = Treatment

CODES = MappingProxyType(
    {
        "MOVED": Code(FOLLOWED, "the slot is on another node of the cluster"),
        "ASK": Code(FOLLOWED, "the slot migrates, and the keys are on its new node"),
        "NOSCRIPT": Code(FOLLOWED, "the server does not have the script yet"),
        "LOADING": Code(RETRIED, "the server reads its data, after a start or as a replica"),
        "BUSY": Code(RETRIED, "a script or function runs for too long"),
        "TRYAGAIN": Code(RETRIED, "the slot migrates, and the keys are on both nodes"),
        "CLUSTERDOWN": Code(RETRIED, "a slot has no node, or the node has lost the majority"),
        "MASTERDOWN": Code(RETRIED, "a replica that has lost its master", leave=True),
        "READONLY": Code(RETRIED, "a replica, perhaps a demoted master", leave=True),
        "NOREPLICAS": Code(RETRIED, "fewer replicas than `min-replicas-to-write`", leave=True),
        "UNBLOCKED": Code(RETRIED, "a waiting command of a master that was demoted", leave=True),
        "REDIRECT": Code(RETRIED, "a replica that names its primary", leave=True),
        "MISCONF": Code(RETRIED, "the disk is full, or a snapshot has failed"),
        "OOM": Code(PATIENT, "`maxmemory` is reached"),
        "NOAUTH": Code(PATIENT, "the connection has not authenticated", leave=True),
        "WRONGPASS": Code(PATIENT, "a wrong user or password", leave=True),
        "NOPERM": Code(PATIENT, "the user lacks a right"),
        "ERR": Code(REFUSED, "any other error of a command or a script"),
        "WRONGTYPE": Code(REFUSED, "a key holds another type"),
        "CROSSSLOT": Code(REFUSED, "keys of a call are in different slots"),
        "DENIED": Code(REFUSED, "protected mode: the server accepts local clients only"),
        "NOPROTO": Code(REFUSED, "`HELLO` with an unknown version of the protocol"),
        "EXECABORT": Code(REFUSED, "a transaction with an invalid command"),
        "NOGROUP": Code(REFUSED, "the stream or its group does not exist"),
        "BUSYGROUP": Code(REFUSED, "the group of a stream exists already"),
        "BUSYKEY": Code(REFUSED, "`RESTORE` to a key that exists"),
        "INPROG": Code(REFUSED, "a sentinel: a failover is in progress"),
        "NOGOODSLAVE": Code(REFUSED, "a sentinel: no replica can be promoted"),
        "NOGOODPRIMARY": Code(REFUSED, "a sentinel: the primary cannot be demoted"),
        "NOQUORUM": Code(REFUSED, "a sentinel: too few sentinels agree"),
        "INVALIDOBJ": Code(REFUSED, "`SENTINEL SET` of an invalid value"),
        "IOERR": Code(REFUSED, "`MIGRATE` cannot reach the other server"),
        "NOMASTERLINK": Code(REFUSED, "`PSYNC` to a replica without a master"),
        "NOTBUSY": Code(REFUSED, "`SCRIPT KILL` while no script runs"),
        "UNKILLABLE": Code(REFUSED, "`SCRIPT KILL` of a script that has written"),
        "NOTREADY": Code(REFUSED, "the cluster cannot migrate slots now"),
    }
)
"""Every code. A code that is missing here is REFUSED."""


def treatment_of(code: str) -> Treatment:
    """Return what a client does after an error code.

    >>> treatment_of("MISCONF").value, treatment_of("NEWCODE").value
    ('retried', 'refused')
    """
    known = CODES.get(code)
    return known.treatment if known else REFUSED
