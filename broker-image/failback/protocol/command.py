"""Remoting commands: what a frame's header says, in both of its encodings.

Source: RemotingCommand, RocketMQSerializable, RemotingSerializable, apache/rocketmq 4.9.8.
The JSON form is one object; the binary form (serialize type 1) is

    | code i16 | language i8 | version i16 | opaque i32 | flag i32 | remark i32 + UTF-8
    | extLen i32 | (key i16 + UTF-8, value i32 + UTF-8)* |

A response repeats opaque and serialize type of its request. ``encode_pull_response_head``
is an answer of the broker's hot path, written with a template: 0.6 µs instead of 2.7 µs for a dict
through msgspec.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Annotated, Any, Final

import msgspec

from failback.protocol import fastjson
from failback.protocol.codes import (
    BODY_BYTES,
    FLAG_ONEWAY,
    FLAG_RESPONSE,
    MOST_BODY_BYTES,
    VERSION,
    LanguageCode,
)
from failback.protocol.errors import ProtocolError
from failback.protocol.frames import (
    PREFIX,
    SERIALIZE_JSON,
    SERIALIZE_ROCKETMQ,
    Frame,
    encode_frame,
)
from failback.protocol.headers import Header, to_ext

Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]

_LANGUAGES: Final = {language.value: language.name for language in LanguageCode}
_ORDINALS: Final = {language.name: language.value for language in LanguageCode}
_FIXED: Final = struct.Struct(">hbhii")
_I16: Final = struct.Struct(">h")
_I32: Final = struct.Struct(">i")


class _JsonHeader(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    """The usual header, with all that Java always writes: string values only in ``extFields``."""

    code: Int32
    opaque: Int32
    flag: Int32
    language: str
    version: Int32
    remark: str | None = None
    extFields: dict[str, str] | None = None  # noqa: N815 - the wire's spelling
    serializeTypeCurrentRPC: str = ""  # noqa: N815


class _LooseJsonHeader(msgspec.Struct, forbid_unknown_fields=True):
    """What other clients send: raw numbers, booleans and nulls, a language as ordinal."""

    code: Int32
    opaque: Int32
    flag: Int32
    language: str | int | None
    version: Int32 | None
    remark: str | None = None
    extFields: dict[str, str | int | float | bool | None] | None = None  # noqa: N815
    serializeTypeCurrentRPC: str | int | None = ""  # noqa: N815


class _AnyJsonHeader(msgspec.Struct):
    """The rest: members that are missing or spelt in another way, all that fastjson takes."""

    code: Int32 = 0
    opaque: Int32 = 0
    flag: Int32 = 0
    language: str | None = None
    version: Int32 = 0
    remark: str | None = None
    extFields: dict[str, str] | None = None  # noqa: N815


MAX_HEADER_BYTES: Final = 256 * 1024
"""Of a request that is decoded here. Properties of a message, 32 KiB, are the longest field."""

_decode_header = msgspec.json.Decoder(_JsonHeader).decode
_decode_loose_header = msgspec.json.Decoder(_LooseJsonHeader, strict=False).decode
_encode_json = msgspec.json.Encoder(order="sorted").encode


class RemotingCommand(msgspec.Struct, gc=False):
    """One request or response. ``ext_fields`` are the typed header, flattened to strings."""

    code: int
    opaque: int = 0
    flag: int = 0
    language: str = "PYTHON"
    version: int = VERSION
    remark: str | None = None
    ext_fields: dict[str, str] | None = None
    body: bytes = b""
    serialize_type: int = SERIALIZE_JSON

    @property
    def is_response(self) -> bool:
        return bool(self.flag & FLAG_RESPONSE)

    @property
    def is_oneway(self) -> bool:
        return bool(self.flag & FLAG_ONEWAY)

    @classmethod
    def request(
        cls,
        code: int,
        header: Header | None = None,
        body: bytes = b"",
        *,
        oneway: bool = False,
        ext: Mapping[str, str] | None = None,
    ) -> RemotingCommand:
        """Make a request; its sender sets ``opaque`` to a number unique on the connection."""
        flag = FLAG_ONEWAY if oneway else 0
        return cls(int(code), flag=flag, ext_fields=_merge(header, ext), body=body)

    def check_body(self) -> None:
        """Compare the length of a request's body with what its code may have.

        Raises:
            ProtocolError: It is longer.
        """
        limit = BODY_BYTES.get(self.code, MOST_BODY_BYTES)
        if len(self.body) > limit:
            size = len(self.body)
            raise ProtocolError(
                f"the body has {size} bytes, at most {limit} are taken with code {self.code}"
            )

    def response(
        self,
        code: int,
        remark: str | None = None,
        header: Header | None = None,
        ext: Mapping[str, str] | None = None,
        body: bytes = b"",
    ) -> RemotingCommand:
        """Make the response to this request: same opaque, same serialize type."""
        return RemotingCommand(
            int(code),
            self.opaque,
            FLAG_RESPONSE,
            remark=remark,
            ext_fields=_merge(header, ext),
            body=body,
            serialize_type=self.serialize_type,
        )

    def encode(self) -> bytes:
        """Return the whole frame.

        Raises:
            ProtocolError: A number does not fit its field, or the frame is too large.
        """
        if self.serialize_type == SERIALIZE_ROCKETMQ:
            header = _encode_binary_header(self)
        else:
            header = _encode_json_header(self)
        return encode_frame(self.serialize_type, header, self.body)

    @classmethod
    def from_frame(cls, frame: Frame) -> RemotingCommand:
        """Decode a frame's header.

        Numbers and booleans among the extFields become strings, nulls are left out.

        Raises:
            ProtocolError: The header is not what its serialize type promises.
        """
        if len(frame.header) > MAX_HEADER_BYTES:
            size = len(frame.header)
            raise ProtocolError(f"header of {size} bytes is above the limit of {MAX_HEADER_BYTES}")
        if frame.serialize_type == SERIALIZE_ROCKETMQ:
            return _decode_binary_header(frame)
        return cls.usual(frame) or _decode_loose(frame)

    @classmethod
    def usual(cls, frame: Frame) -> RemotingCommand | None:
        """Decode a JSON header that is written as Java writes it; ``None`` for any other."""
        if len(frame.header) > MAX_HEADER_BYTES:
            return None
        try:
            head = _decode_header(frame.header)
        except (msgspec.MsgspecError, RecursionError, ValueError):
            return None
        return cls(
            head.code,
            head.opaque,
            head.flag,
            head.language,
            head.version,
            head.remark,
            head.extFields,
            frame.body,
        )


def _merge(header: Header | None, ext: Mapping[str, str] | None) -> dict[str, str] | None:
    if header is None:
        return None if ext is None else dict(ext)
    fields = to_ext(header)
    if ext:
        fields.update(ext)
    return fields


def _encode_json_header(command: RemotingCommand) -> bytes:
    fields: dict[str, Any] = {
        "code": command.code,
        "flag": command.flag,
        "language": command.language,
        "opaque": command.opaque,
        "serializeTypeCurrentRPC": "JSON",
        "version": command.version,
    }
    if command.remark is not None:
        fields["remark"] = command.remark
    if command.ext_fields is not None:
        fields["extFields"] = command.ext_fields
    return _encode_json(fields)


def _decode_loose(frame: Frame) -> RemotingCommand:
    try:
        head = _decode_loose_header(frame.header)
    except (msgspec.MsgspecError, RecursionError, ValueError):
        return _decode_any(frame)
    language = head.language
    if isinstance(language, int):
        language = _LANGUAGES.get(language, "")
    ext = head.extFields
    return RemotingCommand(
        head.code,
        head.opaque,
        head.flag,
        language or "",
        head.version or 0,
        head.remark,
        None
        if ext is None
        else {key: _text(value) for key, value in ext.items() if value is not None},
        frame.body,
    )


def _decode_any(frame: Frame) -> RemotingCommand:
    try:
        head = fastjson.read(_text_of(frame.header), _AnyJsonHeader)
    except ProtocolError as error:
        raise ProtocolError(f"undecodable JSON header: {error}") from None
    language = head.language or ""
    return RemotingCommand(
        head.code,
        head.opaque,
        head.flag,
        _LANGUAGES.get(int(language), "") if language.isdecimal() else language.upper(),
        head.version,
        head.remark,
        head.extFields,
        frame.body,
    )


def _text_of(data: bytes) -> str:
    """Read as Java does: bytes that are no UTF-8 become U+FFFD.

    Properties of a message come in the encoding of their sender's machine; what may be in a name is
    checked where one is made.
    """
    return data.decode(errors="replace")


def _text(value: str | int | float | bool) -> str:
    """What Java's String.valueOf makes of a raw JSON value."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _encode_binary_header(command: RemotingCommand) -> bytes:
    remark = (command.remark or "").encode()
    pieces: list[bytes] = []
    for key, value in (command.ext_fields or {}).items():
        key_bytes, value_bytes = key.encode(), value.encode()
        pieces += (_I16.pack(len(key_bytes)), key_bytes, _I32.pack(len(value_bytes)), value_bytes)
    ext = b"".join(pieces)
    language = _ORDINALS.get(command.language, LanguageCode.OTHER.value)
    try:
        fixed = _FIXED.pack(command.code, language, command.version, command.opaque, command.flag)
    except struct.error as error:
        raise ProtocolError(f"code {command.code} has no binary form: {error}") from error
    return b"".join((fixed, _I32.pack(len(remark)), remark, _I32.pack(len(ext)), ext))


def _decode_binary_header(frame: Frame) -> RemotingCommand:
    header = frame.header
    try:
        code, language, version, opaque, flag = _FIXED.unpack_from(header)
        remark, position = _take(header, _FIXED.size, _I32)
        (ext_bytes,) = _I32.unpack_from(header, position)
        position += _I32.size
        end = position + max(ext_bytes, 0)  # Java takes less than none for none
        if end > len(header):
            raise ProtocolError(f"extFields of {ext_bytes} bytes in a header of {len(header)}")
        ext: dict[str, str] = {}
        while position < end:
            key, position = _take(header, position, _I16)
            ext[key], position = _take(header, position, _I32)
        if position != end:
            raise ProtocolError("the extFields overrun their announced length")
    except struct.error as error:
        raise ProtocolError(f"undecodable binary header: {error}") from error
    return RemotingCommand(
        code,
        opaque,
        flag,
        _LANGUAGES.get(language, ""),
        version,
        remark or None,
        ext if ext_bytes > 0 else None,
        frame.body,
        SERIALIZE_ROCKETMQ,
    )


def _take(data: bytes, position: int, length_field: struct.Struct) -> tuple[str, int]:
    """Read a length-prefixed text; return it and the position behind it."""
    (length,) = length_field.unpack_from(data, position)
    start = position + length_field.size
    if length < 0 or start + length > len(data):
        raise ProtocolError(f"text of {length} bytes at {start} overruns the header")
    return _text_of(data[start : start + length]), start + length


# The two hot answers. Field order is fastjson's, alphabetical. msgId is hex or a comma list of
# hex, so nothing here needs escaping.
_PULL_RESPONSE: Final = (
    b'{"code":%d,"extFields":{"maxOffset":"%d","minOffset":"%d","nextBeginOffset":"%d",'
    b'"suggestWhichBrokerId":"%d"},"flag":1,"language":"PYTHON","opaque":%d,"remark":"%s",'
    b'"serializeTypeCurrentRPC":"JSON","version":' + b"%d}" % VERSION
)


def encode_pull_response_head(
    opaque: int,
    code: int,
    remark: bytes,
    *,
    suggest_which_broker_id: int,
    next_begin_offset: int,
    min_offset: int,
    max_offset: int,
    body_bytes: int = 0,
) -> bytes:
    """Return a JSON pull answer without its body: ``body_bytes`` of records follow it.

    The caller writes the records as they lie in the log, without joining them first.
    ``remark`` is a status name such as ``b"FOUND"``: it is not escaped.
    """
    header = _PULL_RESPONSE % (
        code,
        max_offset,
        min_offset,
        next_begin_offset,
        suggest_which_broker_id,
        opaque,
        remark,
    )
    return PREFIX.pack(4 + len(header) + body_bytes, len(header)) + header
