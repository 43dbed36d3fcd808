"""Every error that acker-redis raises.

::

    AckerError
    ├── ConfigError (ValueError)        a setting, URL or name is invalid
    │   └── NamespaceExistsError        the namespace exists with another configuration
    ├── InvalidBatchError (ValueError)  a row or batch breaks a rule of the protocol
    │   └── DuplicateMessageError       messages of one tree share an id in a micro-batch
    ├── NamespaceNotFoundError          the namespace does not exist
    ├── SchemaError                     the data in Redis is of another version, or damaged
    ├── WrongShardError                 the number of shards has changed
    ├── FenceError                      the fence refused the batch
    │   ├── ChangedBatchError           a batch was sent again with other content
    │   ├── LaneError                   another batch or process has used the lane, or too late
    │   └── FenceFullError              the shard holds the maximum number of fences
    ├── BacklogError                    back-pressure: too many untaken verdicts, or a reshard
    ├── ReshardError                    the reshard or the change of settings is not possible
    ├── DataLossError                   entries or rows that a micro-batch needs are deleted
    ├── RejectedError                   the block or tree was nacked instead of tracked
    ├── HighWaterError                  timeout while waiting for room below the high-water mark
    ├── BufferFullError                 timeout while waiting for room in a buffer
    ├── ClosedError                     the message, tree, producer or source is already closed
    ├── RedisUnavailableError           Redis did not answer in time
    ├── RedisRefusedError               Redis answered with a refusal
    ├── EmbeddedServerError             no local Redis or Valkey server could be started
    └── MissingExtraError (ImportError) a library is not installed, which an extra installs

Unless a class says otherwise, the shard that refused the call has changed nothing. A batch is
applied shard by shard, so other shards may already have applied their parts. Applying the same
Batch object again is idempotent.
"""

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


class AckerError(Exception):
    """Base class of all errors of this package. Catch it to catch every one of them.

    >>> try:
    ...     Acker.from_url("http://localhost", "orders")
    ... except AckerError as error:
    ...     print(type(error).__name__)
    ConfigError
    """


class ConfigError(AckerError, ValueError):
    """Raised when a setting, URL, namespace or source name is invalid.

    The message names the valid values. Fix the call; a retry raises the same error.
    """


class NamespaceExistsError(ConfigError):
    """Raised by create() when the namespace exists with another configuration, or is being dropped.

    Use the existing configuration, choose another name, or drop the namespace first.
    """


class InvalidBatchError(AckerError, ValueError):
    """Raised when a row or batch breaks a rule of the protocol; the batch was not applied.

    Fix the program that made the row; a retry raises the same error.
    """


class DuplicateMessageError(InvalidBatchError):
    """Raised when messages of one tree share an id in a micro-batch, or a child has no input.

    Equal ids would cancel in the checksum. Give rows with one parent on one edge a ``key`` that
    distinguishes them, and emit only from rows whose input the same batch acks.
    """


class NamespaceNotFoundError(AckerError):
    """Raised when the namespace (or one of its shards) does not exist: never created, or dropped.

    Create the namespace, or finish dropping it.
    """


class SchemaError(AckerError):
    """Raised when another version wrote the namespace, or when its data in Redis is damaged.

    Use the version of acker-redis that wrote the namespace.
    """


class WrongShardError(AckerError):
    """Raised when an anchor was sent to a shard that it does not belong to.

    The number of shards has changed since the namespace was opened: it was resharded, or dropped
    and created again. After this error an Acker reads the configuration again before its next
    call. Apply the batch again, unless the message says to give it up.
    """


class FenceError(AckerError):
    """Base class of the errors of a producer's fence, which makes a retried batch idempotent."""


class ChangedBatchError(FenceError):
    """Raised when a batch is sent again under the same number with other content.

    Make the batch deterministic: no random values, no clock, no order that varies between runs.
    """


class LaneError(FenceError):
    """Raised when a batch can no longer be sent under its number in its producer lane.

    The lane has reached a higher number: another process or thread uses it, or this process was
    forked or restarted from an old state. Or the batch was first sent too long ago, so its fence
    may have expired. The shard that raised it applied nothing in this call. Drop the batch: its
    trees expire, and their sources replay them. In Spark, follow the message.
    """


class FenceFullError(FenceError):
    """Raised when a shard holds the maximum number of fences: too many producers were started.

    Reuse producer names, or wait until the old fences have expired.
    """


class BacklogError(AckerError):
    """Raised when a source may not track now; retry later.

    Too many verdicts of the source wait to be taken, or the namespace is resharding. Take the
    outcomes of the source, or wait for the end of the reshard. ``Acker.lost()`` raises it if the
    table of verdicts is not up to date.
    """


class ReshardError(AckerError):
    """Raised when a namespace cannot be resharded, or its settings cannot be changed, now.

    A reshard is already in progress, another one was started, or a shard is not empty. The message
    says which, and which command to run.
    """


class DataLossError(AckerError):
    """Raised by a stream of verdicts when entries that a micro-batch needs were deleted.

    Make sure that a source has one reader. The message names the options that continue. A queue
    raises it if it lacks the rows of a batch that it has accepted, and a batch if files of its
    staging folder are missing after the write.
    """


class RejectedError(AckerError):
    """Raised when a block or an open tree was nacked instead of tracked: emit none of its messages.

    Too many trees were pending, or the previous block with the same number is expiring. The
    source receives the nack as a verdict. Replay the trees of a block under another label.
    """


class HighWaterError(AckerError):
    """Raised when a writer has waited too long for room below the high-water mark.

    Check that the bolts and the rotator run; otherwise raise ``high_water``.
    """


class BufferFullError(AckerError):
    """Raised when a producer or source has waited too long for room in its buffer.

    The rows or the record were not accepted. Redis is too slow or unavailable, or the source does
    not process its verdicts. Retry; a tree whose rows are not retried expires. A ``flush()`` raises
    it for rows that are not answered in time; those rows are still sent.
    """


class ClosedError(AckerError):
    """Raised when a message was already acked or failed, or a tree or producer is closed.

    A source raises it after ``stop()``, until it is run again. Emit before the ack: no row would
    contain a message that is emitted after its parent's ack.
    """


class RedisUnavailableError(AckerError):
    """Raised when Redis could not be reached, or did not answer in time.

    The batch may or may not have been applied. Applying the same Batch object again is idempotent.
    Dropping the batch is safe too: its trees expire.
    """


class RedisRefusedError(AckerError):
    """Raised when Redis refuses a command: out of memory, missing rights, or wrong credentials.

    The message holds the reply of Redis. Fix the server or the rights of the user first.
    """

    code = ""
    """The code of the reply if it is OOM, NOAUTH, WRONGPASS or NOPERM; else ''."""
    may_pass = False
    """Whether the cause may pass by itself, and nothing was changed: apply the same Batch again.

    A producer does so while the fence of the batch holds.
    """


class EmbeddedServerError(AckerError):
    """Raised when no local Redis or Valkey server could be found or started.

    The message says what to install, and shows the last log lines of a server that ended.
    """


class MissingExtraError(AckerError, ModuleNotFoundError):
    """Raised when a library is not installed that an extra of the package installs.

    The message names the extra.
    """


def how_to_install(extras: str) -> str:
    """Return the command that installs extras; every hint has its words from here.

    The package is not published yet, so this works in a checkout.

    >>> how_to_install("cli,embedded")
    "pip install '.[cli,embedded]' in a checkout of acker-redis"
    """
    return f"pip install '.[{extras}]' in a checkout of acker-redis"


@contextmanager
def needs(extra: str, who: str, **others: str) -> "Iterator[None]":
    """Import modules that need an extra in a ``with`` block.

    Args:
        extra: The extra that installs the libraries.
        who: Who needs them.
        **others: The extra that installs another library, by the name of its module.

    Raises:
        MissingExtraError: A library is not installed.

    Examples:
        >>> with needs("http", "the hatter"):  # doctest: +ELLIPSIS
        ...     import felt
        Traceback (most recent call last):
        acker_redis.errors.MissingExtraError: the hatter needs felt: run pip install '.[http]' ...

    """
    try:
        yield
    except ModuleNotFoundError as error:
        name = (error.name or "").partition(".")[0]
        if name in ("", "acker_redis"):
            raise
        hint = how_to_install(others.get(name, extra))
        raise MissingExtraError(f"{who} needs {name}: run {hint}", name=error.name) from None
