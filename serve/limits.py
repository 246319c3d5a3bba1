"""Checks before a request is parsed: API key, content type, size, and the time that its body takes to arrive."""

import asyncio
import math
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import jiter
from fastapi import Request

from rayrank.core.errors import RayrankError
from rayrank.serve.access import facts
from rayrank.serve.keys import ApiKeys, Unit
from rayrank.serve.protocols.problems import Problem
from rayrank.serve.records import Overloaded, Unready

BODY_SECONDS = 30.0
"""Seconds in which a body has to arrive; a slower client gets HTTP 408."""

GZIP = 16 + zlib.MAX_WBITS
"""zlib's code for a body with gzip's header."""


Take = Callable[[int], None]
"""Counts bytes of a body, and refuses them if there is no room for them."""


def check_key(request: Request, keys: ApiKeys) -> None:
    """Refuse a request that has none of the keys, if there are any."""
    if not keys.are_needed:
        return
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    key = given.strip().encode("latin-1") if scheme.lower() == "bearer" else b""
    facts().client = client = keys.client_of(key)
    if client is None:
        message = "The API key is missing or wrong: send the header 'Authorization: Bearer KEY'."
        raise Problem("unauthorised", message, headers={"WWW-Authenticate": "Bearer"})


@contextmanager
def charged(num_passages: int) -> Iterator[None]:
    """Take passages as `charge` does, and give them back if no model scores them."""
    charge("passages", num_passages)
    try:
        yield
    except (Overloaded, Unready, RayrankError):
        if client := facts().client:
            client.give_back("passages", num_passages)
        raise


def charge(unit: Unit, count: int) -> None:
    """Take requests or passages from what the key of the current request may still ask for, or refuse the request."""
    client = facts().client
    if client and (wait := client.take(unit, count)):
        seconds = math.ceil(wait)
        limit = getattr(client.key, unit)
        what = unit if limit > 1 else unit.removesuffix("s")
        message = f"This API key may send {limit:,} {what} a minute: send the request again in {seconds} s."
        raise Problem("overloaded", message, headers={"Retry-After": str(seconds)})


class BodyRoom:
    """Counts the bytes of the bodies of requests that are not answered yet, and refuses one without room."""

    def __init__(self, most: int) -> None:
        self._left = most

    @contextmanager
    def share(self) -> Iterator[Take]:
        """Yield a function that takes bytes of this room, which are free again when the `with` statement ends."""
        taken = 0

        def take(count: int) -> None:
            nonlocal taken
            if count > self._left:
                raise Overloaded(1.0)
            self._left -= count
            taken += count

        try:
            yield take
        finally:
            self._left += taken


async def read_json(request: Request, body_bytes: int, take: Take) -> Any:
    """Return the parsed body; reading stops as soon as the body exceeds the limit, or `take` refuses its bytes."""
    _check_type(request)
    too_large = Problem("too_large", f"The body is larger than {body_bytes} bytes: send fewer documents per request.")
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared[:20]) > body_bytes:
        raise too_large
    is_gzip = request.headers.get("content-encoding", "").lower() == "gzip"
    try:
        async with asyncio.timeout(BODY_SECONDS):
            body = await (_unzipped if is_gzip else _plain)(request, body_bytes, take)
    except TimeoutError:
        message = f"The body did not arrive within {BODY_SECONDS:g} s: send it faster, or fewer documents per request."
        raise Problem("slow", message, headers={"Connection": "close"}) from None
    if body is None:
        raise too_large
    return parse(body)


async def _plain(request: Request, most: int, take: Take) -> bytes | None:
    """Return the body, or None as soon as it is larger than `most`."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > most:
            return None
        take(len(chunk))
    return bytes(body)


async def _unzipped(request: Request, most: int, take: Take) -> bytes | None:
    """Return the decompressed body, or None as soon as it is larger than `most`, compressed or not."""
    gzip, body, received = zlib.decompressobj(GZIP), bytearray(), 0
    try:
        async for chunk in request.stream():
            received += len(chunk)
            # One byte more than is allowed is enough to see that a body is too large.
            more = gzip.decompress(chunk, most + 1 - len(body))
            body += more
            if max(len(body), received) > most:
                return None
            take(len(more))
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
        message = f"{field or 'The body'}: {len(value)} are too many; send at most {most} per request."
        raise Problem("too_many", message, field or None)


def _check_type(request: Request) -> None:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
        given = f"is {kind[:50]}" if kind else "is missing"
        raise Problem("media_type", f"The Content-Type {given}: send application/json.")
    encoding = request.headers.get("content-encoding", "identity").lower()
    if encoding not in ("identity", "gzip"):
        message = f"The Content-Encoding {encoding[:50]} is not supported: send gzip, or the body uncompressed."
        raise Problem("media_type", message)
