"""What the client says when it gives up.

`ApiError` is the verdict of a broker. `Unavailable` means that there is none: nobody could be asked, or
nobody answered in time. Both say what was asked, of whom, and what a person can do about it.
"""

from __future__ import annotations

from collections.abc import Sequence

from quorate.protocol.errors import ApiError, ErrorCode

__all__ = ["Unavailable", "all_failures", "code_of"]


class Unavailable(ConnectionError):  # noqa: N818
    """No answer in time. Whether the request was carried out is not known."""


def code_of(number: int) -> ErrorCode:
    """The error code of a response; one that we do not know is an unknown error.

    >>> code_of(6).name, code_of(9999).name
    ('NOT_LEADER_OR_FOLLOWER', 'UNKNOWN_SERVER_ERROR')
    """
    known = number in ErrorCode._value2member_map_
    return ErrorCode(number) if known else ErrorCode.UNKNOWN_SERVER_ERROR


def all_failures(failures: Sequence[ApiError]) -> ApiError:
    """Several failures of one request as one: it has the code of the first, and the words of all.

    >>> refused = ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, "orders")
    >>> print(all_failures([refused, ApiError(ErrorCode.INVALID_PARTITIONS, "payments")]))
    TOPIC_ALREADY_EXISTS: orders; INVALID_PARTITIONS: payments
    """
    first, *others = failures
    if not others:
        return first
    return ApiError(first.code, "; ".join([first.message, *map(str, others)]))
