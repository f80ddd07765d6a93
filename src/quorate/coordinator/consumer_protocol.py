"""What members of a classic group tell each other; the coordinator passes it on unread."""

from quorate.protocol.message import Message, Struct, field
from quorate.protocol.types import Array, Bytes, Int32, String


class ConsumerProtocolSubscription(Message, versions="0-3", flexible="none"):
    """What a classic consumer tells the leader of its group when it joins."""

    class TopicPartition(Struct):
        topic: String
        partitions: Array[Int32]

    topics: Array[String]
    user_data: Bytes | None = None
    owned_partitions: Array[TopicPartition] = field(default=(), since=1, ignorable=True)
    generation_id: Int32 = field(default=-1, since=2, ignorable=True)
    rack_id: String | None = field(default=None, since=3, ignorable=True)


class ConsumerProtocolAssignment(Message, versions="0-3", flexible="none"):
    """What the leader of a classic group assigns to a member."""

    class TopicPartition(Struct):
        topic: String
        partitions: Array[Int32]

    assigned_partitions: Array[TopicPartition]
    user_data: Bytes | None = None
