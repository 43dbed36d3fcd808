"""The default timeout of a client for a reply."""

from tests import DEFAULT_TIMEOUTS


def test_default_reply_timeout_is_five_seconds() -> None:
    assert set(DEFAULT_TIMEOUTS.values()) == {5.0}
