"""What the quorum itself writes: control records of the metadata log, and the state of a voter."""

from quorate.protocol.message import Message, Struct, field
from quorate.protocol.types import ZERO_UUID, Array, Int16, Int32, Int64, String, Uint16, Uuid


class LeaderChangeMessage(Message, versions="0-1", flexible="0+"):
    """The first record of every epoch: who leads, who votes, who granted the vote."""

    class Voter(Struct):
        voter_id: Int32
        voter_directory_id: Uuid = field(default=ZERO_UUID, since=1)

    version: Int16
    leader_id: Int32
    voters: Array[Voter]
    granting_voters: Array[Voter]


class KRaftVersionRecord(Message, versions="0", flexible="0+"):
    """The level of `kraft.version`."""

    version: Int16
    kraft_version: Int16


class VotersRecord(Message, versions="0", flexible="0+"):
    """The voters, with their directories and endpoints."""

    class Voter(Struct):
        class Endpoint(Struct):
            name: String
            host: String
            port: Uint16

        class KRaftVersionFeature(Struct):
            min_supported_version: Int16
            max_supported_version: Int16

        voter_id: Int32
        voter_directory_id: Uuid
        endpoints: Array[Endpoint]
        kraft_version_feature: KRaftVersionFeature

    version: Int16
    voters: Array[Voter]


class SnapshotHeaderRecord(Message, versions="0", flexible="0+"):
    """The first record of a snapshot."""

    version: Int16
    last_contained_log_timestamp: Int64


class SnapshotFooterRecord(Message, versions="0", flexible="0+"):
    """The last record of a snapshot."""

    version: Int16


class QuorumStateData(Message, versions="0-1", flexible="0+"):
    """What a voter must remember across restarts: its epoch, its leader or its vote."""

    class Voter(Struct):
        voter_id: Int32

    cluster_id: String = field(default="", until=0)
    leader_id: Int32 = -1
    leader_epoch: Int32 = -1
    voted_id: Int32 = -1
    voted_directory_id: Uuid = field(default=ZERO_UUID, since=1)
    applied_offset: Int64 = field(default=0, until=0)
    current_voters: Array[Voter] | None = field(default=(), until=0)
