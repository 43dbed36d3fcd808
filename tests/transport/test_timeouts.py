"""The default timeout of a client for a reply."""

from tests import DEFAULT_TIMEOUTS


def test_a_reply_is_waited_for_five_seconds_by_default() -> None:
    assert set(DEFAULT_TIMEOUTS.values()) == {5.0}
