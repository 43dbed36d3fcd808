"""Every error that acker-redis raises.

::

    AckerError
    ├── ConfigError (ValueError)        a setting, URL or name that cannot work
    │   └── NamespaceExistsError        created before, with another configuration
    ├── InvalidBatchError (ValueError)  a row or batch that breaks a rule of the protocol
    │   └── DuplicateMessageError       messages of one tree that share an id, in one micro-batch
    ├── NamespaceNotFoundError          nobody has created this namespace
    ├── SchemaError                     the namespace was written by another version
    ├── WrongShardError                 the namespace has other shards than it had
    ├── FenceError                      the fence refused the batch
    │   ├── ChangedBatchError           same number, other content
    │   ├── LaneError                   the lane has moved on: forked, shared or restarted
    │   └── FenceFullError              the shard holds as many fences as it may
    ├── BacklogError                    nothing may be tracked: verdicts are not read, or it moves
    ├── ReshardError                     the namespace moves to another number of shards, or cannot
    ├── DataLossError                   verdicts are gone that a stream was to have
    ├── RejectedError                   a block was nacked instead of being tracked
    ├── HighWaterError                  too much is pending, for longer than one may wait
    ├── BufferFullError                 Redis is slower than the program, for longer than it may be
    ├── ClosedError                     a message was acked or failed, or a producer closed, before
    ├── RedisUnavailableError           Redis did not answer in time
    ├── RedisRefusedError               Redis answered, and refused to write
    └── EmbeddedServerError             no local Redis could be started

Unless a class says otherwise, the shard that refused has changed nothing. A batch over several
shards is applied shard by shard: those asked before may have applied their part. Applying the
same Batch again is always safe.
"""


class AckerError(Exception):
    """Base of all errors of this package.

    >>> try:
    ...     Acker.from_url("http://localhost", "orders")
    ... except AckerError as error:
    ...     print(type(error).__name__)
    ConfigError
    """


class ConfigError(AckerError, ValueError):
    """Raised for a configuration, URL, namespace or task name that cannot work."""


class NamespaceExistsError(ConfigError):
    """Raised by create() when the namespace exists with another configuration."""


class InvalidBatchError(AckerError, ValueError):
    """Raised for a row or batch that the protocol forbids; the batch was not applied."""


class DuplicateMessageError(InvalidBatchError):
    """Raised when messages of one tree share an id in a micro-batch, or a child has no input."""


class NamespaceNotFoundError(AckerError):
    """Raised when the namespace (or one of its shards) was never created, or was dropped."""


class SchemaError(AckerError):
    """Raised when the namespace in Redis was written by an incompatible version."""


class WrongShardError(AckerError):
    """Raised when an anchor belongs to another shard than the one it was sent to.

    The namespace has another number of shards than when it was opened: it was moved, or created
    anew. An Acker that was told so reads the configuration again before its next call.
    """


class FenceError(AckerError):
    """Base of the errors of a producer's fence."""


class ChangedBatchError(FenceError):
    """Raised when a batch comes back under its number with other content."""


class LaneError(FenceError):
    """Raised when a producer lane meets a number above its own.

    Another process or thread uses the lane, or it was forked or restarted from an
    old state. The shard that raises it applied nothing by this call.
    """


class FenceFullError(FenceError):
    """Raised when a shard holds as many fences as it may; too many producers came and went."""


class BacklogError(AckerError):
    """Raised when a source tracks while it may not, and has to try again later.

    Too many of its verdicts wait to be taken, or the namespace moves to another number of shards.
    """


class ReshardError(AckerError):
    """Raised when a namespace cannot be moved to another number of shards, or be changed.

    It moves already, another move was begun, or there is still something in it. The words say
    what, and what to do.
    """


class DataLossError(AckerError):
    """Raised by a stream of verdicts when entries are gone that a micro-batch is to have."""


class RejectedError(AckerError):
    """Raised by track_block() when the block was nacked at once: emit nothing of it.

    Too much was pending, or a block of the same number was just expiring. The verdict waits
    for the source; its trees are to be replayed under another label.
    """


class HighWaterError(AckerError):
    """Raised when a writer waited for too long for room below the high-water mark."""


class BufferFullError(AckerError):
    """Raised when rows waited for too long for room in a producer's buffer; none was taken in.

    Redis does not keep up, or is away. What it was about expires, if nobody tries again.
    """


class ClosedError(AckerError):
    """Raised for a message that was acked or failed already, a closed tree, producer or source.

    A message that is emitted after its parent's ack would be counted nowhere.
    """


class RedisUnavailableError(AckerError):
    """Raised when Redis could not be reached, or did not answer in time.

    For a batch this means doubt: it may or may not have been applied. Applying the
    same Batch object again is safe; dropping it is safe too, its trees expire.
    """


class RedisRefusedError(AckerError):
    """Raised when Redis refuses a command: out of memory, no rights, read-only."""


class EmbeddedServerError(AckerError):
    """Raised when no local Redis server could be found or started."""
