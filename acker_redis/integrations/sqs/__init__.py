"""Amazon SQS: a worker and a sender that track the messages of a queue, with ``boto3``.

It needs the extra ``sqs``. ``queue.py`` has the commands of SQS; the worker and the sender are
those of all queues with leases, in ``core``.
"""

from acker_redis.errors import needs
from acker_redis.integrations.core.batches import Messages

with needs("sqs", "acker_redis.integrations.sqs"):
    from acker_redis.integrations.sqs.sender import SqsSender
    from acker_redis.integrations.sqs.worker import SqsWorker

__all__ = ["Messages", "SqsSender", "SqsWorker"]
