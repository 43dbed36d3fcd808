"""Tampered keys raise an AckerError, not a Python exception."""

import pytest

from acker_redis.errors import SchemaError
from acker_redis.flows.names import names
from acker_redis.protocol.keys import NAMESPACES, ShardKeys
from tests.conftest import MakeAcker


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("tick_ms", "soon"),
        ("tick_ms", "0"),
        ("high_water", None),
        ("current", "x"),
        ("acked", ""),
        ("backlog:t", "many"),
        ("reshard", "there"),
    ],
)
def test_tampered_meta_raises_schema_error(
    make_any_acker: MakeAcker, field: str, value: str | None
) -> None:
    acker = make_any_acker()
    client, meta = acker.connection.client, ShardKeys(acker.namespace, 0).meta
    client.hdel(meta, field) if value is None else client.hset(meta, field, value)
    with pytest.raises(SchemaError, match="has been tampered with"):
        acker.status()


def test_invalid_members_of_the_set_are_no_namespaces(make_any_acker: MakeAcker) -> None:
    acker = make_any_acker()
    acker.connection.client.sadd(NAMESPACES, b"\xff\xfe", "two words", "", "x" * 65)
    assert acker.connection.drive(names()) == [acker.namespace]
