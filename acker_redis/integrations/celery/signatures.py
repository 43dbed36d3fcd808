"""Celery's signatures as data: copies of them, and the bodies of the chords they belong to. No I/O.

A signature is a dict: ``task``, ``args``, ``kwargs``, ``options``. A chain has its tasks in
``kwargs["tasks"]``, as a group has; a chord has ``kwargs["header"]`` and ``kwargs["body"]``. A task
of a chord's header has the body in ``options["chord"]``, and so has the message of the task.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from celery.canvas import Signature
from celery.utils.functional import _regen

from acker_redis.errors import ConfigError

Body = dict[str, Any]


def bodies(message: Any) -> Iterator[Body]:
    """Yield the bodies of the chords that wait for the task of a message, or for what follows it.

    Args:
        message: The body of a message in Celery's protocol 2: args, kwargs and a dict with the keys
            ``chord`` and ``chain``.

    Examples:
        >>> inner = {"task": "sum", "options": {"chord": {"task": "mail", "options": {}}}}
        >>> [body["task"] for body in bodies(([], {}, {"chord": inner}))]
        ['sum', 'mail']

    """
    embed = _parts(message)[2]
    yield from _with_outer(embed.get("chord"))
    for task in embed.get("chain") or ():
        yield from _of_task(task)


def unlocked(message: Any) -> Iterator[Body]:
    """Yield the body that a message of the task ``celery.chord_unlock`` waits to publish."""
    yield from _with_outer(_parts(message)[0][1])


def key_of(body: Body) -> str | None:
    """Return a task id of a chord's body, which all tasks of its header know; None without one."""
    found: str | None = body["options"].get("task_id")
    if found is None:
        kwargs = body.get("kwargs") or {}
        inner = [*_several(kwargs.get("tasks")), *filter(None, [kwargs.get("body")])]
        found = next(filter(None, map(key_of, reversed(inner))), None)
    return found


def copied(value: Any) -> Any:
    """Return a copy of a signature, with copies of the signatures in it.

    Celery writes task ids into a signature that it publishes; a copy keeps the original as it was.
    Arguments of tasks are shared, but for dicts, lists and tuples.

    >>> from celery import signature
    >>> once = signature("price", args=(1,))
    >>> frozen = copied(once).freeze("7")
    >>> once.options
    {}
    """
    if isinstance(value, Signature):
        pairs = {key: copied(each) for key, each in value.items()}
        copy = Signature.from_dict(pairs, app=value._app)
        copy._type = value._type
        return copy
    if type(value) is dict:
        return {key: copied(each) for key, each in value.items()}
    if type(value) is tuple:
        return tuple(map(copied, value))
    if type(value) is list or isinstance(value, _regen):  # a group of a generator
        return list(map(copied, value))
    return value


def _parts(message: Any) -> Any:
    if isinstance(message, dict):
        raise ConfigError("task_protocol is 1: a TaskTracker needs protocol 2, Celery's default")
    return message


def _of_task(task: Body) -> Iterator[Body]:
    yield from _with_outer(task["options"].get("chord"))
    kwargs = task.get("kwargs") or {}
    if task.get("subtask_type") in ("chain", "group"):
        for each in _several(kwargs.get("tasks")):
            yield from _of_task(each)
    elif task.get("subtask_type") == "chord" and kwargs.get("body"):
        # Its header gets this chord's body when the chord is published.
        yield from _of_task(kwargs["body"])


def _with_outer(body: Body | None) -> Iterator[Body]:
    """Yield a body, and the bodies of the chords to whose headers it belongs."""
    if body:
        yield body
        yield from _of_task(body)


def _several(tasks: Any) -> Iterable[Body]:
    return tasks if isinstance(tasks, list | tuple) else ()
