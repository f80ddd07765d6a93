"""Answers for each of many items that a client names, in the order in which it names them.

A few are answered as they are. Many are encoded one by one, and what is named again is answered with the
bytes of the first time: a client that repeats itself costs no more than the copy.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Any, Final, TypeVar, cast

from quorate.net.routes import RequestContext
from quorate.net.slices import STEPS_PER_SLICE, Work
from quorate.protocol.encoder import PreEncoded
from quorate.protocol.items import EncodedItems
from quorate.protocol.message import Message, Struct

__all__ = ["FEW", "answers_for_each"]

FEW: Final = 100
"""So many are not worth the trouble."""
# Nobody knows how large an answer is that is not encoded: ten of them are a slice.
_STEPS_OF_FEW: Final = STEPS_PER_SLICE // 10
# A step takes about as long as so many bytes of an answer, if they are made and if they are copied.
_MADE_BYTES_PER_STEP: Final = 200
_COPIED_BYTES_PER_STEP: Final = 20_000
REMEMBERED_MAX: Final = 1000
"""Answers that are kept to be given again."""

K = TypeVar("K")
S = TypeVar("S", bound=Struct)


def answers_for_each(
    context: RequestContext,
    items: Sequence[K],
    answer: Callable[[K], S | Awaitable[S]],
    encoded_as: tuple[type[S], type[Message], int],
    key: Callable[[K], Hashable] | None = None,
) -> Work[list[S]]:
    """An answer for each item, encoded as items of that struct in a version of that message.

    `key` says which items are the same; without it none are. What answers come to is told before all of them
    are there, by those that are.
    """
    if len(items) <= FEW:
        found = []
        for one in items:
            made = answer(one)
            found.append((yield made) if isinstance(made, Awaitable) else made)
            yield _STEPS_OF_FEW
        return found
    encoded = EncodedItems(*encoded_as)
    known: dict[Hashable, bytes] = {}
    expected_bytes = 0
    for number, one in enumerate(items, 1):
        same = None if key is None else key(one)
        again = known.get(same)
        if again is None:
            made = answer(one)
            item = encoded.add((yield made) if isinstance(made, Awaitable) else made)
            steps = 1 + len(item) // _MADE_BYTES_PER_STEP
            if key is not None and len(known) < REMEMBERED_MAX:
                known[same] = item
        else:
            encoded.add_encoded(again)
            steps = 1 + len(again) // _COPIED_BYTES_PER_STEP
        if number % FEW == 0:
            size_bytes = encoded.size_bytes * len(items) // number
            if size_bytes > 2 * expected_bytes:
                expected_bytes = size_bytes
                context.expect(expected_bytes)
        yield steps
    return _as_list(encoded.taken())


def _as_list(items: PreEncoded) -> list[Any]:
    """What an array of structs may be as well."""
    return cast("list[Any]", items)
