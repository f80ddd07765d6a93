"""Producer ids and transactions."""

from quorate.protocol.message import Request, Response, Struct, field
from quorate.protocol.types import Array, Bool, Int8, Int16, Int32, Int64, String


class InitProducerIdRequest(Request, key=22, versions="0-6", flexible="2+", served="0-5", listeners="broker"):
    """A producer asks for its id and epoch; with a transactional id, it fences its predecessors."""

    transactional_id: String | None
    transaction_timeout_ms: Int32
    producer_id: Int64 = field(default=-1, since=3)
    producer_epoch: Int16 = field(default=-1, since=3)
    enable2_pc: Bool = field(default=False, since=6)
    keep_prepared_txn: Bool = field(default=False, since=6)


class InitProducerIdResponse(Response, key=22, versions="0-6", flexible="2+"):
    throttle_time_ms: Int32
    error_code: Int16
    producer_id: Int64 = -1
    producer_epoch: Int16
    ongoing_txn_producer_id: Int64 = field(default=-1, since=6)
    ongoing_txn_producer_epoch: Int16 = field(default=-1, since=6)


class AddPartitionsToTxnTopic(Struct):
    name: String
    partitions: Array[Int32]


class AddPartitionsToTxnRequest(Request, key=24, versions="0-5", flexible="3+", listeners="broker"):
    """Adds partitions to a transaction, or verifies that they are part of it."""

    class Transaction(Struct):
        transactional_id: String
        producer_id: Int64
        producer_epoch: Int16
        verify_only: Bool = False
        topics: Array[AddPartitionsToTxnTopic]

    transactions: Array[Transaction] = field(default=(), since=4)
    v3_and_below_transactional_id: String = field(default="", until=3)
    v3_and_below_producer_id: Int64 = field(default=0, until=3)
    v3_and_below_producer_epoch: Int16 = field(default=0, until=3)
    v3_and_below_topics: Array[AddPartitionsToTxnTopic] = field(default=(), until=3)


class AddPartitionsToTxnTopicResult(Struct):
    class PartitionResult(Struct):
        partition_index: Int32
        partition_error_code: Int16

    name: String
    results_by_partition: Array[PartitionResult]


class AddPartitionsToTxnResponse(Response, key=24, versions="0-5", flexible="3+"):
    class Result(Struct):
        transactional_id: String
        topic_results: Array[AddPartitionsToTxnTopicResult]

    throttle_time_ms: Int32
    error_code: Int16 = field(default=0, since=4, ignorable=True)
    results_by_transaction: Array[Result] = field(default=(), since=4)
    results_by_topic_v3_and_below: Array[AddPartitionsToTxnTopicResult] = field(default=(), until=3)


class AddOffsetsToTxnRequest(Request, key=25, versions="0-4", flexible="3+", listeners="broker"):
    """Adds the offsets of a group to a transaction."""

    transactional_id: String
    producer_id: Int64
    producer_epoch: Int16
    group_id: String


class AddOffsetsToTxnResponse(Response, key=25, versions="0-4", flexible="3+"):
    throttle_time_ms: Int32
    error_code: Int16


class TxnOffsetCommitRequest(Request, key=28, versions="0-5", flexible="3+", listeners="broker"):
    """Stores offsets that count only if the transaction commits."""

    class Topic(Struct):
        class Partition(Struct):
            partition_index: Int32
            committed_offset: Int64
            committed_leader_epoch: Int32 = field(default=-1, since=2, ignorable=True)
            committed_metadata: String | None

        name: String
        partitions: Array[Partition]

    transactional_id: String
    group_id: String
    producer_id: Int64
    producer_epoch: Int16
    generation_id: Int32 = field(default=-1, since=3)
    member_id: String = field(default="", since=3)
    group_instance_id: String | None = field(default=None, since=3)
    topics: Array[Topic]


class TxnOffsetCommitResponse(Response, key=28, versions="0-5", flexible="3+"):
    class Topic(Struct):
        class Partition(Struct):
            partition_index: Int32
            error_code: Int16

        name: String
        partitions: Array[Partition]

    throttle_time_ms: Int32
    topics: Array[Topic]


class EndTxnRequest(Request, key=26, versions="0-5", flexible="3+", listeners="broker"):
    """Commits or aborts a transaction."""

    transactional_id: String
    producer_id: Int64
    producer_epoch: Int16
    committed: Bool


class EndTxnResponse(Response, key=26, versions="0-5", flexible="3+"):
    throttle_time_ms: Int32
    error_code: Int16
    producer_id: Int64 = field(default=-1, since=5, ignorable=True)
    producer_epoch: Int16 = field(default=-1, since=5, ignorable=True)


class WriteTxnMarkersRequest(
    Request, key=27, versions="0-2", flexible="1+", served="1-2", listeners="broker"
):
    """The transaction coordinator tells partition leaders how transactions ended."""

    class WritableTxnMarker(Struct):
        class WritableTxnMarkerTopic(Struct):
            name: String
            partition_indexes: Array[Int32]

        producer_id: Int64
        producer_epoch: Int16
        transaction_result: Bool
        topics: Array[WritableTxnMarkerTopic]
        coordinator_epoch: Int32
        transaction_version: Int8 = field(default=0, since=2, ignorable=True)

    markers: Array[WritableTxnMarker]


class WriteTxnMarkersResponse(Response, key=27, versions="0-2", flexible="1+"):
    class WritableTxnMarkerResult(Struct):
        class WritableTxnMarkerTopicResult(Struct):
            class WritableTxnMarkerPartitionResult(Struct):
                partition_index: Int32
                error_code: Int16

            name: String
            partitions: Array[WritableTxnMarkerPartitionResult]

        producer_id: Int64
        topics: Array[WritableTxnMarkerTopicResult]

    markers: Array[WritableTxnMarkerResult]


class DescribeTransactionsRequest(Request, key=65, versions="0", flexible="0+", listeners="broker"):
    """The state of transactions by transactional id."""

    transactional_ids: Array[String]


class DescribeTransactionsResponse(Response, key=65, versions="0", flexible="0+"):
    class TransactionState(Struct):
        class TopicData(Struct):
            topic: String
            partitions: Array[Int32]

        error_code: Int16
        transactional_id: String
        transaction_state: String
        transaction_timeout_ms: Int32
        transaction_start_time_ms: Int64
        producer_id: Int64
        producer_epoch: Int16
        topics: Array[TopicData]

    throttle_time_ms: Int32
    transaction_states: Array[TransactionState]


class ListTransactionsRequest(Request, key=66, versions="0-2", flexible="0+", listeners="broker"):
    """Which transactions does this coordinator have?"""

    state_filters: Array[String]
    producer_id_filters: Array[Int64]
    duration_filter: Int64 = field(default=-1, since=1)
    transactional_id_pattern: String | None = field(default=None, since=2)


class ListTransactionsResponse(Response, key=66, versions="0-2", flexible="0+"):
    class TransactionState(Struct):
        transactional_id: String
        producer_id: Int64
        transaction_state: String

    throttle_time_ms: Int32
    error_code: Int16
    unknown_state_filters: Array[String]
    transaction_states: Array[TransactionState]


class DescribeProducersRequest(Request, key=61, versions="0", flexible="0+", listeners="broker"):
    """The producers that have written to a partition, as its leader remembers them."""

    class TopicRequest(Struct):
        name: String
        partition_indexes: Array[Int32]

    topics: Array[TopicRequest]


class DescribeProducersResponse(Response, key=61, versions="0", flexible="0+"):
    class TopicResponse(Struct):
        class PartitionResponse(Struct):
            class ProducerState(Struct):
                producer_id: Int64
                producer_epoch: Int32
                last_sequence: Int32 = -1
                last_timestamp: Int64 = -1
                coordinator_epoch: Int32
                current_txn_start_offset: Int64 = -1

            partition_index: Int32
            error_code: Int16
            error_message: String | None = None
            active_producers: Array[ProducerState]

        name: String
        partitions: Array[PartitionResponse]

    throttle_time_ms: Int32
    topics: Array[TopicResponse]
