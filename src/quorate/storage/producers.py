"""What a partition remembers of its producers."""

from quorate.protocol.message import Message, Struct
from quorate.protocol.types import Array, Int16, Int32, Int64, Uint32


class ProducerSnapshot(Message, versions="1", flexible="none"):
    """What a partition remembers of its producers, as saved beside its segments."""

    class ProducerEntry(Struct):
        producer_id: Int64
        epoch: Int16
        last_sequence: Int32
        last_offset: Int64
        offset_delta: Int32
        timestamp: Int64
        coordinator_epoch: Int32
        current_txn_first_offset: Int64

    crc: Uint32
    producer_entries: Array[ProducerEntry]
