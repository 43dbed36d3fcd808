"""The words of redis-py's errors, without what only a programmer of redis-py can read."""

import os
import re

_PAIR = re.compile(r" ?:? \((-?[0-9]+), ['\"](.*?)['\"]\)")
"""A pair of number and text: "Error while reading from h:1 : (104, 'Connection reset by peer')"."""
_REFUSED = re.compile(r"Error ([0-9]+) connecting to (\S+)\. Connect call failed \(.*?\)")
"""asyncio's address of a host with one address."""
_SEVERAL = re.compile(r"Error Multiple exceptions: (.*) connecting to (\S+?)\.?$")
_ONE_OF_SEVERAL = re.compile(r"\[Errno ([0-9]+)\] Connect call failed \('(.*?)', .*?\)")
"""asyncio's addresses of a host with several addresses."""
_NO_MASTER = re.compile(r"No master found for '(.*?)'")
_SENTINEL = re.compile(r"host=([^,>]*),port=([0-9]+).*? - (?:network:)?([^,]*)")
_PLAIN = {
    "TTL exhausted": "the nodes of the cluster sent the call from one to another, sixteen times: "
    "they disagree on which of them has its slot (redis-cli --cluster check HOST:PORT shows it)",
    "Connection closed by server": "the server closed the connection",
}
_ADVICE = (
    ("NOREPLICAS ", "start its replicas again, or lower min-replicas-to-write"),
    ("max number of clients reached", "close idle clients, or raise maxclients"),
    ("You can't write against a read only replica", "connect to its master"),
    ("Link with MASTER is down", "start its master again, or promote a replica"),
    ("Redis is loading the dataset", "wait until it has read its data"),
    ("The cluster is down", "redis-cli --cluster check HOST:PORT shows the missing node"),
    ("Hash slot not served", "redis-cli --cluster check HOST:PORT shows the missing node"),
)
"""What to do about replies that do not say it themselves. redis-py cuts the code of some."""


_RUNS = "the nodes of the cluster ", "max number of clients "
"""How the words of errors of servers that run begin."""


def plain_words(text: str) -> str:
    """Return the message of an error of redis-py in words; one without such parts is unchanged.

    >>> plain_words("Error while reading from redis:6379 : (104, 'Connection reset by peer')")
    'Error while reading from redis:6379: Connection reset by peer'
    >>> plain_words("Link with MASTER is down.")
    'Link with MASTER is down: start its master again, or promote a replica'
    >>> plain_words("Error 111 connecting to h:1. Connect call failed ('::1', 1, 0, 0).")
    'Error 111 connecting to h:1. Connection refused.'
    """
    if found := _NO_MASTER.match(text):
        sentinels = [f"{host}:{port}: {why}" for host, port, why in _SENTINEL.findall(text)]
        reasons = f" ({', '.join(sentinels)})" if sentinels else ""
        return f"no sentinel names a master for {found[1]!r}{reasons}"
    if found := _SEVERAL.match(text):
        tried = _ONE_OF_SEVERAL.sub(lambda each: f"{each[2]}: {_strerror(each[1])}", found[1])
        return f"Error connecting to {found[2]}. {tried}"
    for begin, advice in _ADVICE:
        if text.startswith(begin):
            return f"{text.rstrip('.')}: {advice}"
    text = _REFUSED.sub(lambda it: f"Error {it[1]} connecting to {it[2]}. {_strerror(it[1])}", text)
    return _PLAIN.get(text.rstrip("."), _PAIR.sub(r": \2", text))


def no_answer(words: str) -> str:
    """Return the message of an error without a reply, from its plain words.

    >>> no_answer("Timeout reading from redis:6379")
    'Redis did not answer: Timeout reading from redis:6379; is it running and reachable?'
    """
    words = words.rstrip(".")
    if words.startswith(_RUNS):
        return f"Redis cannot run the call now: {words}"
    return f"Redis did not answer: {words}; is it running and reachable?"


def _strerror(number: str) -> str:
    return os.strerror(int(number))
