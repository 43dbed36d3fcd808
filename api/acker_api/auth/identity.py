"""The caller of a request: by the token in its header, or by the cookie of a session.

A session is a signed cookie and nothing else, so every worker and replica accepts it. Its key is
derived from the digest of the token: when the token is removed or changed, its sessions end.
Logging out deletes the cookie in the browser.
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
"""Name of the cookie over https: no other host, and no page over http, can set it."""
_SALTS = {COOKIE: "acker-redis session", SECURE_COOKIE: "acker-redis session, https only"}
"""One salt per name: the value of one cookie is not valid for the other."""


class Identity:
    """Identifies the caller of a request.

    ``session_for`` is the lifetime of a session in seconds. With ``https_only``, browsers reach the
    service by https only: the plain cookie, which another host could have set, is ignored.
    ``root_path`` is part of the names of the cookies: services under several paths of one host do
    not replace each other's.
    """

    def __init__(
        self, tokens: Tokens, session_for: int, https_only: bool = False, root_path: str = ""
    ) -> None:
        self.tokens, self.session_for, self.https_only = tokens, session_for, https_only
        self._ending = root_path.replace("/", "-")
        self._by_id = {_id_of(grant): grant for grant in tokens}

    def of(self, headers: Headers) -> Who | None:
        """Return the caller; None if unknown or uncertain. A token has precedence over a cookie."""
        found = self._shown(headers)
        if not self.tokens.open:
            return found
        return replace(ANYBODY, metrics=bool(found) or not self.tokens.for_metrics)

    def shows_token(self, headers: Headers) -> bool:
        """Return whether a request has a token, valid or not, and the service has tokens."""
        return bool(headers.get("authorization")) and self.tokens.for_metrics

    def name_of_token(self, headers: Headers) -> str | None:
        """Return the name of the token of a request; None for a wrong token."""
        grant = self._granted(headers.get("authorization", ""))
        return grant.who.name if grant else None

    def by_https(self, scheme: str, headers: Headers) -> bool:
        """Return whether the browser came by https, also if a proxy terminated TLS.

        A page of another site can set neither these headers nor that cookie.
        """
        return (
            self.https_only
            or scheme == "https"
            or headers.get("x-forwarded-proto", "").strip().lower() == "https"
            or self.named(SECURE_COOKIE) in cookie_parser(headers.get("cookie", ""))
        )

    def named(self, cookie: str) -> str:
        """Return the name of COOKIE or SECURE_COOKIE for this service.

        >>> Identity(Tokens(()), 3600, root_path="/tools/acker").named(COOKIE)
        'acker-redis-tools-acker'
        """
        return cookie + self._ending

    def begin(self, grant: Grant, cookie: str = COOKIE) -> str:
        """Return the value of a cookie of this name for a new session."""
        return _signer(grant, cookie).sign(f"{_id_of(grant)}.{secrets.token_urlsafe(12)}").decode()

    def of_cookie(self, value: str, cookie: str = COOKIE) -> Who | None:
        """Return the owner of a session by its cookie; None if it is invalid or has ended."""
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
            if value := cookies.get(self.named(name)):
                return self.of_cookie(value, name)
        return None


def _signer(grant: Grant, cookie: str) -> TimestampSigner:
    return TimestampSigner(
        grant.digest, salt=_SALTS[cookie], key_derivation="hmac", digest_method=hashlib.sha256
    )


def _id_of(grant: Grant) -> str:
    """Return an id of the signing key; it reveals nothing of the token."""
    return hmac.digest(grant.digest, b"id", "sha256").hex()[:16]
