"""The log of the transaction coordinator, `__transaction_state`, and the markers it has written."""

from quorate.protocol.message import Message, Record, Struct, field
from quorate.protocol.types import Array, Int8, Int16, Int32, Int64, String


class TransactionLogKey(Record, key=0, versions="0", flexible="none"):
    """A transactional id."""

    transactional_id: String


class TransactionLogValue(Record, key=0, versions="0-1", flexible="1+"):
    """The state of a transactional id."""

    class PartitionsSchema(Struct):
        topic: String
        partition_ids: Array[Int32]

    producer_id: Int64
    previous_producer_id: Int64 = field(default=-1, since=1, tag=0)
    next_producer_id: Int64 = field(default=-1, since=1, tag=1)
    producer_epoch: Int16
    next_producer_epoch: Int16 = field(default=-1, since=1, tag=3)
    transaction_timeout_ms: Int32
    transaction_status: Int8
    transaction_partitions: Array[PartitionsSchema] | None
    transaction_last_update_timestamp_ms: Int64
    transaction_start_timestamp_ms: Int64
    client_transaction_version: Int16 = field(default=0, since=1, tag=2)


class EndTxnMarker(Message, versions="0", flexible="none"):
    """The value of a COMMIT or ABORT control record."""

    coordinator_epoch: Int32
