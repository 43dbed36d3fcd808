"""Executors without a route to Redis: their error says so, and what to use instead."""

from acker_redis.errors import AckerError, RedisUnavailableError
from acker_redis.spark.fold.target import Target


def of_task(error: AckerError, target: Target) -> AckerError:
    """Return the error of a task; with advice if this process, the driver, reaches Redis.

    The driver is asked once. Redis may also have come back since the task's last try.
    """
    if not isinstance(error, RedisUnavailableError):
        return error
    try:
        target.client().connection.command("PING")
    except AckerError:
        return error
    return type(error)(
        f"{error}. This was in a task, and the driver reaches Redis: if the executors have no "
        "route to it (serverless, isolated Python workers, a firewall), use mode='driver'"
    )
