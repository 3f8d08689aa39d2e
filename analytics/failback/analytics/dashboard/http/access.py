"""The user of a request, and their rights: hosts, tokens, sessions, cross-site requests, rates.

* On loopback without tokens everybody may do everything, and the Host header must name loopback:
  a foreign page whose name was pointed at 127.0.0.1 cannot read anything.
* Otherwise a bearer token with scope ``read`` or ``operate``, a session that began with one, or a
  user whom the configured proxy names.
* What changes something needs the session's CSRF token when it comes with a cookie, and must never
  come from another site's page.
"""

from __future__ import annotations

import hmac
import secrets
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection

from failback.analytics.dashboard.problems import DashboardProblem
from failback.analytics.dashboard.settings import DashboardSettings, is_loopback
from failback.analytics.web.tokens import OPERATE, READ, TokenFile
from failback.client.remoting.addresses import canonical

COOKIE: Final = "failback_session"
CSRF_HEADER: Final = "x-csrf-token"
SESSION_SECONDS: Final = 12 * 3600.0
MOST_SESSIONS: Final = 10_000
MOST_CLIENTS: Final = 10_000
SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})


@dataclass(frozen=True, slots=True)
class Identity:
    """The user of a request. ``session`` is empty for bearer tokens and proxies."""

    name: str
    scopes: frozenset[str]
    session: str = ""
    csrf: str = ""

    def may(self, scope: str) -> bool:
        return scope in self.scopes or (scope == READ and OPERATE in self.scopes)


@dataclass(slots=True)
class _Session:
    authorization: str
    """The header it began with: a token that leaves the file ends its sessions. Never written."""
    csrf: str
    until: float


ANYBODY: Final = "anybody on this machine"
_ALL: Final = frozenset({READ, OPERATE})


class Access:
    """Decides over requests; one event loop owns it."""

    def __init__(self, settings: DashboardSettings, tokens: TokenFile | None) -> None:
        self._settings = settings
        self._tokens = tokens
        self._proxy = canonical(settings.proxy)
        self._sessions: OrderedDict[str, _Session] = OrderedDict()
        self._rates = RateLimit(settings.requests_per_minute)
        self._writes = RateLimit(settings.writes_per_minute)
        self._open_csrf = secrets.token_urlsafe(32)

    # --- before anything else ---------------------------------------------------------------------

    def check_host(self, connection: HTTPConnection) -> None:
        """Refuse names that are not this dashboard's. Raises ``DashboardProblem``."""
        hosts = connection.headers.getlist("host")
        if len(hosts) > 1:  # a proxy before it may have looked at another one
            raise DashboardProblem("wrong-host", f"there are {len(hosts)} Host headers")
        host = _host_of(hosts[0] if hosts else "")
        if is_loopback(host) or host in self._settings.public_hosts:
            return
        if not self._settings.is_open and not self._settings.public_hosts:
            return  # a request without a token is refused under any name
        raise DashboardProblem("wrong-host", f"Host is {host!r}; --public-host adds a name")

    def check_rate(self, connection: HTTPConnection, *, writes: bool) -> None:
        """Count a request. Raises ``DashboardProblem`` with ``Retry-After``."""
        client = connection.client.host if connection.client else "?"
        limit = self._writes if writes else self._rates
        wait = limit.take(client, time.monotonic())
        if wait:
            what = f"more than {limit.per_minute} requests a minute"
            raise DashboardProblem("too-many", what, retry_after_seconds=wait)

    # --- who ----------------------------------------------------------------------------------

    def identify(self, connection: HTTPConnection) -> Identity | None:
        """Return the user of a request, or ``None``."""
        if self._settings.is_open:
            return Identity(ANYBODY, _ALL, session="open", csrf=self._open_csrf)
        authorization = connection.headers.get("authorization")
        if authorization is not None:
            # A proxy may pass on with what its user logged in there.
            return self._of_token(authorization) or self._of_proxy(connection)
        session = self._session_of(connection)
        if session is not None:
            name, found = session
            known = self._of_token(found.authorization)
            if known is not None:
                return Identity(known.name, known.scopes, name, found.csrf)
            del self._sessions[name]
        return self._of_proxy(connection)

    def _of_token(self, authorization: str) -> Identity | None:
        entry = self._tokens.find(authorization) if self._tokens is not None else None
        if entry is None:
            return None
        return Identity(entry.name, entry.scopes & _ALL)

    def _of_proxy(self, connection: HTTPConnection) -> Identity | None:
        settings = self._settings
        client = connection.client.host if connection.client else ""
        if self._proxy is None or canonical(client) != self._proxy:
            return None
        user = connection.headers.get(settings.proxy_header, "").strip()
        if not user:
            return None
        scopes = _ALL if user in settings.operators else frozenset({READ})
        csrf = hmac.digest(self._open_csrf.encode(), user.encode(), "sha256").hex()
        return Identity(user, scopes, session="proxy", csrf=csrf)

    def require(self, connection: HTTPConnection, scope: str) -> Identity:
        """Return the user of a request, if they may. Raises ``DashboardProblem``."""
        identity = self.identify(connection)
        if identity is None:
            raise DashboardProblem("unauthenticated", "no token, or one that is not in the file")
        if not identity.may(scope):
            raise DashboardProblem("forbidden", f"{identity.name} has not the scope {scope}")
        return identity

    def may_read(self, connection: HTTPConnection) -> bool:
        """Return whether the user of a request may still look."""
        identity = self.identify(connection)
        return identity is not None and identity.may(READ)

    def check_origin(self, connection: HTTPConnection) -> None:
        """Refuse what another site's page sends. Raises ``DashboardProblem``."""
        headers = connection.headers
        if headers.get("sec-fetch-site", "same-origin") not in {"same-origin", "none"}:
            raise DashboardProblem("cross-site", f"Sec-Fetch-Site is {headers['sec-fetch-site']}")
        origin = headers.get("origin")
        if origin is not None and urlsplit(origin).netloc != headers.get("host"):
            raise DashboardProblem("cross-site", "Origin is another site")

    def check_csrf(self, connection: HTTPConnection, identity: Identity, token: str | None) -> None:
        """For what changes something. Raises ``DashboardProblem``.

        A bearer token is sent on purpose and needs none; so does a tool on an open loopback, which
        sends no Origin and is no browser.
        """
        self.check_origin(connection)
        if not identity.session:
            return
        is_tool = identity.session == "open" and "origin" not in connection.headers
        if is_tool and token is None and "cookie" not in connection.headers:
            return
        if token is None or not hmac.compare_digest(token.encode(), identity.csrf.encode()):
            raise DashboardProblem("cross-site", "the CSRF token is missing or another session's")

    # --- sessions ---------------------------------------------------------------------------------

    def log_in(self, token: str) -> str | None:
        """Begin a session; its name for the cookie, or ``None`` for an unknown token."""
        authorization = f"Bearer {token.strip()}"
        if self._of_token(authorization) is None:
            return None
        name = secrets.token_urlsafe(32)
        until = time.monotonic() + SESSION_SECONDS
        self._sessions[name] = _Session(authorization, secrets.token_urlsafe(32), until)
        while len(self._sessions) > MOST_SESSIONS:
            self._sessions.popitem(last=False)
        return name

    def log_out(self, connection: HTTPConnection) -> None:
        self._sessions.pop(connection.cookies.get(COOKIE, ""), None)

    def _session_of(self, connection: HTTPConnection) -> tuple[str, _Session] | None:
        name = connection.cookies.get(COOKIE, "")
        session = self._sessions.get(name)
        if session is None:
            return None
        if session.until < time.monotonic():
            del self._sessions[name]
            return None
        return name, session


class RateLimit:
    """So many requests a minute per client, after a burst of as many. Bounded memory."""

    def __init__(self, per_minute: int) -> None:
        self.per_minute = per_minute
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, client: str, now: float) -> int:
        """0 when it may, else seconds to wait."""
        left, since = self._left.get(client, (float(self.per_minute), now))
        left = min(float(self.per_minute), left + (now - since) * self.per_minute / 60)
        wait = 0
        if left >= 1:
            left -= 1
        else:
            wait = max(1, round((1 - left) * 60 / self.per_minute + 0.5))
        self._left[client] = (left, now)
        self._left.move_to_end(client)
        while len(self._left) > MOST_CLIENTS:
            self._left.popitem(last=False)
        return wait


def _host_of(header: str) -> str:
    """The Host header without its port."""
    if header.startswith("["):
        return header[1:].partition("]")[0].lower()
    return header.partition(":")[0].lower()
