"""A web application: each request is a tree, by one producer that exists before the fork.

Its rows linger for a minute: an acked request was sent by the end of a worker.
"""

import os
from collections.abc import Callable, Iterable
from typing import Any

from acker_redis.sync.client import Acker
from acker_redis.sync.producer import Producer

producer = Producer(
    Acker.from_url(os.environ["ACKER_TEST_URL"], os.environ["ACKER_TEST_NAMESPACE"]),
    "t",
    linger=60,
)
producer.track(1, "loaded", [40])


def application(environ: dict[str, Any], start_response: Callable[..., object]) -> Iterable[bytes]:
    anchor = int(environ["PATH_INFO"].strip("/"))
    producer.track(anchor, f"s{anchor}", [40])
    producer.ack(anchor, 40, [41])
    producer.ack(anchor, 41)
    start_response("200 OK", [("Content-Type", "text/plain")])
    return [str(os.getpid()).encode()]
