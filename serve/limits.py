"""Checks before a request is parsed: API key, content type, size, and the time that its body takes to arrive."""

import asyncio
import hmac
import zlib
from collections.abc import Sequence
from typing import Any

import jiter
from fastapi import Request

from rayrank.serve.protocols.problems import Problem

BODY_SECONDS = 30.0
"""Seconds in which a body has to arrive; a slower client gets HTTP 408."""

GZIP = 16 + zlib.MAX_WBITS
"""zlib's code for a body with gzip's header."""


def check_key(request: Request, keys: Sequence[str]) -> None:
    """Refuse a request that has none of the keys, if there are any."""
    if not keys:
        return
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    key = given.strip().encode("latin-1") if scheme.lower() == "bearer" else b""
    # All keys are compared, each in constant time, so that the time taken reveals nothing about them.
    if not sum(hmac.compare_digest(key, known.encode()) for known in keys):
        message = "The API key is missing or wrong: send the header 'Authorization: Bearer KEY'."
        raise Problem("unauthorised", message, headers={"WWW-Authenticate": "Bearer"})


async def read_json(request: Request, body_bytes: int) -> Any:
    """Return the parsed body; reading stops as soon as the body exceeds the limit."""
    _check_type(request)
    too_large = Problem("too_large", f"The body is larger than {body_bytes} bytes: send fewer documents per request.")
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared[:20]) > body_bytes:
        raise too_large
    is_gzip = request.headers.get("content-encoding", "").lower() == "gzip"
    try:
        async with asyncio.timeout(BODY_SECONDS):
            body = await _unzipped(request, body_bytes) if is_gzip else await _plain(request, body_bytes)
    except TimeoutError:
        message = f"The body did not arrive within {BODY_SECONDS:g} s: send it faster, or fewer documents per request."
        raise Problem("slow", message, headers={"Connection": "close"}) from None
    if body is None:
        raise too_large
    return parse(body)


async def _plain(request: Request, most: int) -> bytes | None:
    """Return the body, or None as soon as it is larger than `most`."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > most:
            return None
    return bytes(body)


async def _unzipped(request: Request, most: int) -> bytes | None:
    """Return the decompressed body, or None as soon as it is larger than `most`, compressed or not."""
    gzip, body, received = zlib.decompressobj(GZIP), bytearray(), 0
    try:
        async for chunk in request.stream():
            received += len(chunk)
            # One byte more than is allowed is enough to see that a body is too large.
            body += gzip.decompress(chunk, most + 1 - len(body))
            if max(len(body), received) > most:
                return None
    except zlib.error:
        raise Problem(
            "invalid_json", "The body is not gzip, as its Content-Encoding says: compress it again."
        ) from None
    if not gzip.eof:
        raise Problem("invalid_json", "The compressed body ends too early: send all of it.")
    return bytes(body)


def parse(body: bytes) -> Any:
    """Parse strict JSON: without NaN, duplicate keys, unpaired surrogates or unlimited nesting."""
    try:
        return jiter.from_json(body, allow_inf_nan=False, catch_duplicate_keys=True)
    except ValueError as error:
        raise Problem("invalid_json", f"The body is not JSON: {error}.") from None


def check_lists(value: Any, most: int, field: str = "") -> None:
    """Refuse lists of more than `most` entries before the entries are validated."""
    if isinstance(value, dict):
        for name, inner in value.items():
            check_lists(inner, most, f"{field}.{name}" if field else name)
    elif isinstance(value, list) and len(value) > most:
        raise Problem("too_many", f"{field}: {len(value)} are too many; send at most {most} per request.", field)


def _check_type(request: Request) -> None:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
        given = f"is {kind[:50]}" if kind else "is missing"
        raise Problem("media_type", f"The Content-Type {given}: send application/json.")
    encoding = request.headers.get("content-encoding", "identity").lower()
    if encoding not in ("identity", "gzip"):
        message = f"The Content-Encoding {encoding[:50]} is not supported: send gzip, or the body uncompressed."
        raise Problem("media_type", message)
