"""The core of the integrations: a message in process, the same for each transport.

``work.py`` is the message in process, from its handler's call until its row is sent, and finds the
one of the current context. ``failures.py`` decides about a message that failed. ``headers.py`` puts
ids into headers. ``ended.py`` finds messages that need no handler. ``handlers.py`` checks that a
handler has done its work, and ``until_signal.py`` ends a loop. ``batches.py`` is for handlers of
batches, and ``columns.py`` for the messages that such a handler does not name. ``worker.py``,
``settling.py``, ``pace.py`` and ``sender.py`` do the rest for a queue with leases, whose commands
are in ``queues.py``: a new transport of this kind implements those, as ``sqs`` does.

**Order of events**, for each transport. The handler runs, and each message that it sends is
emitted first: so its id is in the row of its parent. The handler returns. The transport has taken
each child. The row goes to Redis. The message is confirmed to the transport. A crash at any moment
leaves a message that is delivered again, or a tree that expires, and none that is skipped. If a
step has no answer, the next one does not follow. (A response of HTTP, and a task of Celery without
``acks_late``, is confirmed before its row is sent: then a crash leaves a tree that expires.)

**A second delivery** has the same id. The tree of a message that was acked, and is delivered again
because it was not confirmed, gets two acks. If it is complete, the second is ignored. If not, the
acks cancel each other, and the tree expires: a replay, and no false ack.

**A failure.** A handler that raises an Exception fails its message, and so does a child that the
transport refuses. The first error counts. The message is confirmed, because the source decides
about a replay. ``on_failure`` is told before that; if it fails, the message has no row and is not
confirmed. Without an id no source is told: without ``on_failure`` the exception ends the consumer.
Any other BaseException leaves the message without a row and unconfirmed.

In what the transports differ:

============ ====================== ====================== ================= =====================
transport    confirmed by           a failed message       given back        why that must differ
============ ====================== ====================== ================= =====================
Kafka        a commit of the        counts as complete     offsets below it  a commit names all
             position               in its partition       are committed     offsets below it
Streams      XACK, for many         leaves the group       stays pending,    a group counts its
                                                           ``idle`` seconds  deliveries
SQS          deleting it, ten in    is deleted             stays invisible   SQS cannot be asked
             a call                                        ``lease`` seconds who has a message
RabbitMQ     ``basic_ack``; the     is rejected, to the    ``basic_nack``    the broker has dead
             handler may call it    dead-letter exchange   with ``requeue``  letters, too
HTTP         the response           the exception, or the  never: a client   a response is sent
                                    status, goes on        sends it again    before the row
Celery       Celery, by             Celery's end: after    ``acks_late``     a task ends by
             ``acks_late``          the last retry         only              signals of Celery
============ ====================== ====================== ================= =====================

In a handler, ``current`` is the handle of its message: ``reset_timeout()`` is its heartbeat, for
the tree alone. A worker of Streams or SQS also has ``renew()``, which keeps the message as well.
"""
