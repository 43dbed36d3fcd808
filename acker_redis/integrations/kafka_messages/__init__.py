"""What the integrations of Kafka share, for each client library: pure, without I/O.

``work.py`` is the state of one message in process, ``partitions.py`` says which offsets may be
committed.
"""
