"""The accounts of plain_acl.yml: read, checked, and changed as mqadmin asks.

A value that is no text is taken as Java's YAML reader makes one of it: a number in decimal. Source:
PlainPermissionManager, PlainAccessConfig, apache/rocketmq 4.9.8.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from failback.client.remoting.access import rights
from failback.client.remoting.access.white_addresses import Matcher, matcher
from failback.protocol.message import RETRY_PREFIX
from failback.protocol.route import DataVersion

_T = TypeVar("_T")
LEAST_KEY_LENGTH: Final = 7
ACCOUNTS: Final = "accounts"
WHITE_ADDRESSES: Final = "globalWhiteRemoteAddresses"
DATA_VERSION: Final = "dataVersion"
_TEXTS: Final = (
    "accessKey",
    "secretKey",
    "whiteRemoteAddress",
    "defaultTopicPerm",
    "defaultGroupPerm",
)
_LISTS: Final = ("topicPerms", "groupPerms")


@dataclass(frozen=True, slots=True)
class Account:
    """An access key and its rights. Its secret is not shown where it is printed."""

    access_key: str
    secret_key: bytes = field(repr=False)
    is_admin: bool
    is_white: Matcher = field(repr=False)
    default_topic: int
    default_group: int
    resources: Mapping[str, int] | None
    """Rights by resource; ``None``: none are written, so that an admin has all."""

    def lacks(self, code: int, needs: rights.Needs, admin_codes: frozenset[int]) -> str:
        """Return which right is missing, in the words of 4.9.8; empty for none."""
        if code in admin_codes and not self.is_admin:
            return (
                f"Need admin permission for request code={code},"
                f" but accessKey={self.access_key} is not"
            )
        if self.resources is None and self.is_admin:
            return ""
        owned = self.resources or {}
        for resource, needed in needs:
            is_group = resource.startswith(RETRY_PREFIX)
            default = self.default_group if is_group else self.default_topic
            if not rights.suffices(needed, owned.get(resource, default)):
                return f"No default permission for {rights.in_words(resource)}"
        return ""


@dataclass(frozen=True, slots=True)
class FileRules:
    """What one file says."""

    accounts: Mapping[str, Account] = field(default_factory=dict)
    white_addresses: tuple[Matcher, ...] = ()
    version: DataVersion = field(default_factory=DataVersion)


def rules_of(document: object) -> FileRules:
    """Return what a file says.

    Raises:
        ValueError: It is no such file, or a part of it is wrong: says which.
    """
    if document is None:
        return FileRules()
    if not isinstance(document, Mapping):
        raise ValueError(f"holds no settings such as {ACCOUNTS}:, but {_kind(document)}")
    accounts: dict[str, Account] = {}
    for at, each in enumerate(_list(document, ACCOUNTS)):
        account = _in_place(f"{ACCOUNTS}[{at}]", account_of, each)
        if account.access_key in accounts:
            raise ValueError(f"{ACCOUNTS}[{at}]: the accessKey {account.access_key} is there twice")
        accounts[account.access_key] = account
    white = [
        _in_place(f"{WHITE_ADDRESSES}[{at}]", matcher, text_of(each) or "")
        for at, each in enumerate(_list(document, WHITE_ADDRESSES))
    ]
    return FileRules(accounts, tuple(white), version_of(document))


def version_of(document: Mapping[str, Any]) -> DataVersion:
    """Return how often mqadmin has changed a file."""
    for each in document.get(DATA_VERSION) or ():
        counter, timestamp = each.get("counter", 0), each.get("timestamp", 0)
        if isinstance(counter, int) and isinstance(timestamp, int):
            return DataVersion(timestamp, counter)
    return DataVersion()


def account_of(fields: object) -> Account:
    """Return the account of one entry.

    Raises:
        ValueError: It is none. The message holds no secret.
    """
    if not isinstance(fields, Mapping):
        raise ValueError(f"is no account with accessKey: and secretKey:, but {_kind(fields)}")
    texts = {name: _in_place(name, text_of, fields.get(name)) for name in _TEXTS}
    for name in ("accessKey", "secretKey"):
        if len(texts[name] or "") < LEAST_KEY_LENGTH:
            raise ValueError(f"{name}: must have more than 6 characters")
    admin = fields.get("admin", False)
    if admin not in (True, False, None, "true", "false"):
        raise ValueError(f"admin: must be true or false, got {admin!r}")
    resources: dict[str, int] = {}
    for name, resource in (("groupPerms", rights.group), ("topicPerms", str)):
        for each in _list(fields, name):
            resources |= _in_place(name, _permission, each, resource)
    return Account(
        access_key=texts["accessKey"] or "",
        secret_key=(texts["secretKey"] or "").encode(),
        is_admin=admin in (True, "true"),
        is_white=_in_place("whiteRemoteAddress", matcher, texts["whiteRemoteAddress"] or ""),
        default_topic=rights.parsed(texts["defaultTopicPerm"]),
        default_group=rights.parsed(texts["defaultGroupPerm"]),
        resources=resources or None,
    )


def _permission(written: object, resource: Callable[[str], str]) -> dict[str, int]:
    parts = [part for part in (text_of(written) or "").split("=") if part]
    if len(parts) != 2:
        raise ValueError(f"must be NAME=RIGHT such as orders=PUB|SUB, got {written!r}")
    return {resource(parts[0].strip()): rights.parsed(parts[1])}


def text_of(value: object) -> str | None:
    """Return a scalar as Java makes a text of it."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    raise ValueError(f"must be a text, got {_kind(value)}: put it in quotes")


def _list(fields: Mapping[str, Any], name: str) -> Sequence[Any]:
    found = fields.get(name) or ()
    if isinstance(found, list | tuple):
        return found
    raise ValueError(f"{name}: must be a list, got {_kind(found)}")


def _in_place(place: str, read: Callable[..., _T], *arguments: object) -> _T:
    try:
        return read(*arguments)
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from None


def _kind(value: object) -> str:
    return f"a {type(value).__name__}"


# --- changes of mqadmin ---------------------------------------------------------------------------


def with_account(document: dict[str, Any], changes: Mapping[str, str]) -> dict[str, Any]:
    """Return a file with an account added or changed; what is not given stays as it is.

    Args:
        changes: Fields of an UpdateAccessConfig request, lists joined by commas.

    Raises:
        ValueError: They make no account; the message is that of 4.9.8, without the secret.
    """
    key = changes.get("accessKey", "")
    if min(len(key), len(changes.get("secretKey", ""))) < LEAST_KEY_LENGTH:
        raise ValueError(
            f"The accessKey={key} and secretKey cannot be null and length should longer than 6"
        )
    for name in _LISTS:
        for each in _split(changes.get(name)):
            parts = [part for part in each.split("=") if part]
            if len(parts) != 2:
                raise ValueError(
                    f"Parse Resource format error for {each}.\nThe expected resource format is"
                    " 'Res=Perm'. For example: topicA=SUB"
                )
            if not rights.is_right(parts[1]):
                raise ValueError(
                    f"Parse resource permission error for {each}.\nThe expected permissions are"
                    " 'SUB' or 'PUB' or 'SUB|PUB' or 'PUB|SUB'."
                )
    accounts = list(document.get(ACCOUNTS) or ())
    old: Mapping[str, Any] = next((each for each in accounts if each.get("accessKey") == key), {})
    new = dict(old)
    new |= {name: changes[name] for name in _TEXTS if changes.get(name)}
    if "whiteRemoteAddress" in changes:
        new["whiteRemoteAddress"] = changes["whiteRemoteAddress"]
    new["admin"] = changes.get("admin") == "true"
    new |= {name: _split(changes[name]) for name in _LISTS if name in changes}
    account_of(new)
    return document | {ACCOUNTS: [*(each for each in accounts if each is not old), new]}


def without_account(document: dict[str, Any], key: str) -> dict[str, Any]:
    """Return a file without an account."""
    accounts = document.get(ACCOUNTS) or ()
    return document | {ACCOUNTS: [each for each in accounts if each.get("accessKey") != key]}


def with_white_addresses(document: dict[str, Any], written: str) -> dict[str, Any]:
    """Return a file with other global white addresses, which are joined by commas.

    Raises:
        ValueError: One is no address.
    """
    addresses = _split(written)
    for each in addresses:
        matcher(each)
    return document | {WHITE_ADDRESSES: addresses}


def _split(text: str | None) -> list[str]:
    return [each for each in (text or "").split(",") if each]
