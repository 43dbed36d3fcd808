"""What the integrations of Kafka share, for each client library: pure, without I/O.

``in_process.py`` has the messages in process, ``partitions.py`` says which offsets may be
committed.
"""
