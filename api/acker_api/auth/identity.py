"""Who sends a request: by the token in its header, or by the cookie of a session.

A session is a signed cookie and nothing else, so every worker and replica knows it. It is signed
with a key that is made from the digest of the token: when the token is taken away or changed, the
sessions that were begun with it have ended too. To log out deletes the cookie in the browser.
"""

import hashlib
import hmac
import secrets
from dataclasses import replace

from itsdangerous import BadData, TimestampSigner
from starlette.datastructures import Headers
from starlette.requests import cookie_parser

from acker_api.auth.tokens import ANYBODY, Grant, Tokens, Who

COOKIE = "acker-redis"
SECURE_COOKIE = f"__Host-{COOKIE}"
"""Its name where it is set by https: no other host and no plain page can set one."""
_SALTS = {COOKIE: "acker-redis session", SECURE_COOKIE: "acker-redis session, https only"}
"""Another for each name: the value of one cookie is no value of the other."""


class Identity:
    """Tells who sends a request.

    ``session_for`` is how many seconds a session lasts. With ``https_only`` browsers reach the
    service by https alone: the plain cookie, which another host could have planted, does not count.
    """

    def __init__(self, tokens: Tokens, session_for: int, https_only: bool = False) -> None:
        self.tokens, self.session_for, self.https_only = tokens, session_for, https_only
        self._by_id = {_id_of(grant): grant for grant in tokens}

    def of(self, headers: Headers) -> Who | None:
        """Who it is; None if that is not known, or not for sure. A token goes before a cookie."""
        found = self._shown(headers)
        if not self.tokens.open:
            return found
        return replace(ANYBODY, metrics=bool(found) or not self.tokens.for_metrics)

    def shows_token(self, headers: Headers) -> bool:
        """Whether a request shows a token, right or wrong, where there are tokens."""
        return bool(headers.get("authorization")) and self.tokens.for_metrics

    def name_of_token(self, headers: Headers) -> str | None:
        """The name of the token that a request shows; None if that is wrong."""
        grant = self._granted(headers.get("authorization", ""))
        return grant.who.name if grant else None

    def by_https(self, scheme: str, headers: Headers) -> bool:
        """Whether a browser has reached the service by https, also where a proxy ended TLS.

        A page of another site cannot set these headers, nor that cookie.
        """
        return (
            self.https_only
            or scheme == "https"
            or headers.get("x-forwarded-proto", "").strip().lower() == "https"
            or SECURE_COOKIE in cookie_parser(headers.get("cookie", ""))
        )

    def begin(self, grant: Grant, cookie: str = COOKIE) -> str:
        """Value of a cookie of this name for a new session."""
        return _signer(grant, cookie).sign(f"{_id_of(grant)}.{secrets.token_urlsafe(12)}").decode()

    def of_cookie(self, value: str, cookie: str = COOKIE) -> Who | None:
        """The owner of a session, by the value of its cookie; None if it has ended, or is none."""
        grant = self._by_id.get(value.partition(".")[0])
        if not grant:
            return None
        try:
            _signer(grant, cookie).unsign(value, max_age=self.session_for)
        except BadData:
            return None
        return replace(grant.who, by_cookie=True)

    def _granted(self, authorization: str) -> Grant | None:
        scheme, _, token = authorization.partition(" ")
        return self.tokens.find(token.strip()) if scheme.lower() == "bearer" else None

    def _shown(self, headers: Headers) -> Who | None:
        if authorization := headers.get("authorization"):
            grant = self._granted(authorization)
            return grant.who if grant else None
        cookies = cookie_parser(headers.get("cookie", ""))
        for name in (SECURE_COOKIE,) if self.https_only else (SECURE_COOKIE, COOKIE):
            if value := cookies.get(name):
                return self.of_cookie(value, name)
        return None


def _signer(grant: Grant, cookie: str) -> TimestampSigner:
    return TimestampSigner(
        grant.digest, salt=_SALTS[cookie], key_derivation="hmac", digest_method=hashlib.sha256
    )


def _id_of(grant: Grant) -> str:
    """Tells which key has signed, and nothing of the token."""
    return hmac.digest(grant.digest, b"id", "sha256").hex()[:16]
