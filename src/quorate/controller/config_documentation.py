"""What every configuration is for, in a line: for DescribeConfigs, and for the page for operators."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from quorate.controller.config_definitions import TOPIC_CONFIGS, UNITS_MS, group_synonym

__all__ = ["CLIENT_METRICS", "GROUPS", "TOPICS", "of_broker"]

TOPICS: Final[Mapping[str, str]] = {
    "cleanup.policy": "What happens to old records: delete by age and size, compact by key, or both.",
    "compression.gzip.level": "How hard gzip tries, where the broker compresses.",
    "compression.lz4.level": "How hard lz4 tries, where the broker compresses.",
    "compression.type": "The codec that records are stored in; producer keeps the one they came in.",
    "compression.zstd.level": "How hard zstd tries, where the broker compresses.",
    "delete.retention.ms": "How long the mark of a deletion outlives it in a compacted topic.",
    "file.delete.delay.ms": "How long a file that is no longer needed stays before it is removed.",
    "flush.messages": "After how many records a log is synced to disk.",
    "flush.ms": "After how long a record is synced to disk.",
    "follower.replication.throttled.replicas": "Replicas, as partition:broker or *, that fetch no faster than"
    " follower.replication.throttled.rate.",
    "index.interval.bytes": "How many bytes of records lie between two entries of an index.",
    "internal.segment.bytes": "The size of a segment file, for tests that need small ones.",
    "leader.replication.throttled.replicas": "Replicas, as partition:broker or *, that are sent no faster"
    " than leader.replication.throttled.rate.",
    "local.retention.bytes": "How much stays on the broker of what is stored remotely.",
    "local.retention.ms": "How long what is stored remotely stays on the broker as well.",
    "max.compaction.lag.ms": "After how long a record of a compacted topic is looked at by all means.",
    "max.decompressed.message.bytes": "The largest record that is taken in a compressed batch.",
    "max.message.bytes": "The largest record batch that is taken, after compression.",
    "message.timestamp.after.max.ms": "How far in the future the timestamp of a record may be.",
    "message.timestamp.before.max.ms": "How far in the past the timestamp of a record may be.",
    "message.timestamp.type": "Whose time a record carries: the producer's, or that of the append.",
    "min.cleanable.dirty.ratio": "How much of a log must not have been compacted before it is worth doing.",
    "min.compaction.lag.ms": "How long a record stays as it is before compaction may remove it.",
    "min.insync.replicas": "How many replicas must be in sync for a write with acks=all to be taken.",
    "preallocate": "Whether a file gets its full size when it is made.",
    "remote.log.copy.disable": "Whether nothing more is stored remotely.",
    "remote.log.delete.on.disable": "Whether what is stored remotely goes when that is turned off.",
    "remote.storage.enable": "Whether old segments are stored remotely.",
    "retention.bytes": "How large a partition may become before its oldest segments go; -1 is no limit.",
    "retention.ms": "How old a segment may become before it goes; -1 is no limit.",
    "segment.bytes": "The size of a segment file.",
    "segment.index.bytes": "The size that the index of a segment may have.",
    "segment.jitter.ms": "By how much a segment may be younger than segment.ms when the next one begins.",
    "segment.ms": "The age of a segment at which the next one begins although it is not full.",
    "unclean.leader.election.enable": "Whether a replica that is not in sync may lead when no other can,"
    " although records are lost.",
}

GROUPS: Final[Mapping[str, str]] = {
    "consumer.assignment.interval.ms": "How often, at most, the partitions of the group are assigned anew.",
    "consumer.heartbeat.interval.ms": "How often members of the consumer group say that they are alive.",
    "consumer.session.timeout.ms": "After what silence a member is taken out of the consumer group.",
    "share.assignment.interval.ms": "How often, at most, the partitions of the group are assigned anew.",
    "share.auto.offset.reset": "Where a share group begins: earliest, latest, or by_duration:PnDTnHnMnS ago.",
    "share.delivery.count.limit": "How often a record is delivered before it is given up.",
    "share.heartbeat.interval.ms": "How often members of the share group say that they are alive.",
    "share.isolation.level": "Whether the share group sees records of open and aborted transactions.",
    "share.partition.max.record.locks": "How many records of a partition may be under way to members.",
    "share.record.lock.duration.ms": "How long a member has a record for itself.",
    "share.renew.acknowledge.enable": "Whether a member may have a record for itself for longer.",
    "share.session.timeout.ms": "After what silence a member is taken out of the share group.",
    "streams.assignment.interval.ms": "How often, at most, the tasks of the group are assigned anew.",
    "streams.heartbeat.interval.ms": "How often members of the streams group say that they are alive.",
    "streams.initial.rebalance.delay.ms": "How long a new streams group waits for more members.",
    "streams.num.standby.replicas": "How many copies of the state of a task are kept ready.",
    "streams.session.timeout.ms": "After what silence a member is taken out of the streams group.",
}

CLIENT_METRICS: Final[Mapping[str, str]] = {
    "interval.ms": "How often clients that match send their metrics.",
    "match": "Which clients are meant: name=pattern, separated by commas; all of them if it is empty.",
    "metrics": "Prefixes of the metrics that clients send; none if it is empty, all if it is *.",
}

_BROKERS: Final[Mapping[str, str]] = {
    "advertised.listeners": "Where clients and other nodes reach the listeners, if not as they are bound.",
    "authorizer.class.name": "Not empty: controllers keep access control entries, for brokers of Apache's. A"
    " Quorate node allows everything.",
    "auto.create.topics.enable": "Whether a topic is made when somebody asks for one that there is not.",
    "auto.leader.rebalance.enable": "Whether the controller gives leaderships back to preferred replicas.",
    "background.threads": "Threads for chores.",
    "broker.heartbeat.interval.ms": "How often a broker tells the controller that it is alive.",
    "broker.id": "The number of a broker of a ZooKeeper cluster; -1 takes the one it had, or the next.",
    "broker.id.generation.enable": "Whether a broker without a number gets one from ZooKeeper.",
    "broker.rack": "Where the broker stands; replicas of a partition are spread over racks.",
    "broker.session.timeout.ms": "After what silence the controller takes a broker for dead.",
    "config.providers": "Classes that fetch values from elsewhere.",
    "connections.max.idle.ms": "After how long a connection without traffic is closed.",
    "control.plane.listener.name": "The listener by which the elected controller reaches this broker.",
    "controlled.shutdown.enable": "Whether a broker gives its leaderships away before it stops.",
    "controlled.shutdown.max.retries": "How often a broker asks an elected controller to let it go.",
    "controlled.shutdown.retry.backoff.ms": "How long it waits in between.",
    "controller.listener.names": "The listeners that controllers use among each other and with brokers.",
    "controller.quorum.append.linger.ms": "How long appends to the metadata log may be gathered.",
    "controller.quorum.bootstrap.servers": "Some controllers, to find the quorum by.",
    "controller.quorum.election.backoff.max.ms": "The longest pause after an election that nobody won.",
    "controller.quorum.election.timeout.ms": "How long a candidate waits for votes.",
    "controller.quorum.fetch.timeout.ms": "After what silence of the leader an election begins.",
    "controller.quorum.request.timeout.ms": "How long a controller waits for an answer of another.",
    "controller.quorum.retry.backoff.ms": "The pause before a controller asks another one again.",
    "controller.quorum.voters": "All controllers, as id@host:port, of a quorum that does not change.",
    "controller.socket.timeout.ms": "After what silence an elected controller sends a request again.",
    "cordoned.log.dirs": "Log directories that get no new replicas.",
    "default.replication.factor": "How many replicas a new topic has that does not say.",
    "delegation.token.expiry.check.interval.ms": "How often ended delegation tokens are removed.",
    "delegation.token.expiry.time.ms": "How long a delegation token lasts before it must be renewed.",
    "delegation.token.max.lifetime.ms": "How long a delegation token can be renewed.",
    "delegation.token.secret.key": "The secret that delegation tokens are made with.",
    "delete.topic.enable": "Whether topics can be deleted.",
    "fetch.max.bytes": "The most that one fetch is answered with.",
    "follower.fetch.last.tiered.offset.enable": "Whether new followers begin after what is stored remotely.",
    "follower.replication.throttled.rate": "Bytes per second that this broker fetches for the replicas in"
    " follower.replication.throttled.replicas.",
    "group.consumer.assignment.interval.ms": GROUPS["consumer.assignment.interval.ms"],
    "group.consumer.assignors": "The ways to spread partitions that consumer groups may choose.",
    "group.consumer.max.assignment.interval.ms": "The highest consumer.assignment.interval.ms of a group.",
    "group.consumer.max.heartbeat.interval.ms": "The highest consumer.heartbeat.interval.ms of a group.",
    "group.consumer.max.session.timeout.ms": "The highest consumer.session.timeout.ms of a group.",
    "group.consumer.max.size": "How many members a consumer group may have.",
    "group.consumer.migration.policy": "Whether groups may change between classic and consumer protocol.",
    "group.consumer.min.assignment.interval.ms": "The lowest consumer.assignment.interval.ms of a group.",
    "group.consumer.min.heartbeat.interval.ms": "The lowest consumer.heartbeat.interval.ms of a group.",
    "group.consumer.min.session.timeout.ms": "The lowest consumer.session.timeout.ms of a group.",
    "group.consumer.regex.refresh.interval.ms": "How often patterns of topics are matched anew.",
    "group.coordinator.append.linger.ms": "How long the group coordinator waits for more to write; here it"
    " writes together what comes together.",
    "group.coordinator.background.threads": "Threads that assign partitions and match patterns.",
    "group.coordinator.cached.buffer.max.bytes": "The largest buffer that the group coordinator keeps.",
    "group.coordinator.rebalance.protocols": "The protocols that members of groups may speak.",
    "group.coordinator.threads": "Threads of the group coordinator.",
    "group.initial.rebalance.delay.ms": "How long a new classic group waits for more members.",
    "group.max.session.timeout.ms": "The highest session timeout that a member of a classic group may ask"
    " for.",
    "group.max.size": "How many members a classic group may have.",
    "group.min.session.timeout.ms": "The lowest session timeout that a member of a classic group may ask"
    " for.",
    "group.share.assignment.interval.ms": GROUPS["share.assignment.interval.ms"],
    "group.streams.assignment.interval.ms": GROUPS["streams.assignment.interval.ms"],
    "initial.broker.registration.timeout.ms": "How long a starting broker tries to register.",
    "inter.broker.listener.name": "The listener that brokers use among each other.",
    "inter.broker.protocol.version": "The release whose requests the brokers of a ZooKeeper cluster use.",
    "leader.imbalance.check.interval.seconds": "How often leaderships are given back to preferred replicas.",
    "leader.imbalance.per.broker.percentage": "How much of what a broker should lead others may, before an"
    " elected controller gives it back.",
    "leader.replication.throttled.rate": "Bytes per second that this broker sends to the replicas in"
    " leader.replication.throttled.replicas.",
    "listener.security.protocol.map": "How each listener is secured.",
    "listeners": "Where the node listens: NAME://host:port.",
    "log.cleaner.backoff.ms": "How long the cleaner rests when there is nothing to compact.",
    "log.cleaner.dedupe.buffer.size": "Memory for the keys of logs that are being compacted.",
    "log.cleaner.enable": "Whether logs are compacted whose topics want it.",
    "log.cleaner.io.buffer.load.factor": "How full the cleaner's table of keys may become.",
    "log.cleaner.io.buffer.size": "Memory for what the cleaner reads and writes.",
    "log.cleaner.io.max.bytes.per.second": "How fast the cleaner may read and write.",
    "log.cleaner.threads": "How many logs are compacted at the same time.",
    "log.dir": "The log directory, if log.dirs does not say.",
    "log.dir.failure.timeout.ms": "How long a broker waits until the controller knows of a failed directory.",
    "log.dirs": "The log directories.",
    "log.retention.check.interval.ms": "How often logs are looked through for what is too old or too much.",
    "max.connection.creation.rate": "New connections per second; those who come faster wait for their turn.",
    "max.connections": "Connections of a broker, and of each listener that has no number of its own.",
    "max.connections.per.ip": "Connections from one address.",
    "max.connections.per.ip.overrides": "Connections from single hosts, as host:number,host:number.",
    "max.incremental.fetch.session.cache.slots": "How many fetch sessions are kept.",
    "metadata.log.dir": "The directory of the metadata log, if it is not the first log directory.",
    "metadata.log.max.record.bytes.between.snapshots": "How much metadata makes a new snapshot worthwhile.",
    "metadata.log.max.snapshot.interval.ms": "After how long there is a new snapshot of the metadata.",
    "metadata.log.segment.bytes": "The size of a segment file of the metadata log.",
    "metadata.max.idle.interval.ms": "How often the active controller writes if there is nothing to write.",
    "metadata.max.retention.bytes": "How much metadata log is kept behind the newest snapshot.",
    "metadata.max.retention.ms": "How long metadata log is kept behind the newest snapshot.",
    "metric.reporters": "Classes that pass metrics on.",
    "node.id": "The number of this node.",
    "num.io.threads": "Threads that work on requests.",
    "num.network.threads": "Threads that read and write connections.",
    "num.partitions": "How many partitions a new topic has that does not say.",
    "num.recovery.threads.per.data.dir": "Threads that recover logs.",
    "num.replica.fetchers": "Fetchers for each broker that is followed.",
    "offset.metadata.max.bytes": "How long the note of a committed offset may be.",
    "offsets.commit.required.acks": "How many replicas a commit of offsets waits for; here always all that"
    " are in sync.",
    "offsets.commit.timeout.ms": "How long a commit of offsets waits for its replicas.",
    "offsets.load.buffer.size": "How much is read at a time when a group coordinator loads.",
    "offsets.retention.check.interval.ms": "How often offsets are looked through for those that nobody"
    " needs.",
    "offsets.retention.minutes": "How long the offsets of a group without members are kept.",
    "offsets.topic.compression.codec": "The codec of all that the group coordinator writes: 0 to 4 for none,"
    " gzip, snappy, lz4 and zstd.",
    "offsets.topic.num.partitions": "Partitions of the topic of committed offsets.",
    "offsets.topic.replication.factor": "Replicas of the topic of committed offsets.",
    "offsets.topic.segment.bytes": "The size of a segment file of the topic of committed offsets.",
    "principal.builder.class": "The class that says who a client is.",
    "process.roles": "What the node is: broker, controller, or both.",
    "producer.id.expiration.check.interval.ms": "How often producers are looked through for those to forget.",
    "producer.id.expiration.ms": "After how long without a batch a producer is forgotten.",
    "queued.max.request.bytes": "Memory for requests that are being read or worked on; -1 is no limit.",
    "quorate.admin.hosts": "Names, besides its own, that the HTTP endpoint for operators answers to.",
    "quorate.admin.listener": "Where the HTTP endpoint for operators listens; empty is nowhere.",
    "quorate.events.publish": "Whether what happens to the cluster is written to the topic __cluster_events.",
    "quorate.events.settle.ms": "How long the cluster must be quiet before that topic is made.",
    "quorate.lab.enabled": "Whether the HTTP endpoint lets others break the node on purpose; for tests.",
    "quorate.log.format": "How the lines of the log look: plain or json.",
    "quorate.log.level": "How much the log says when the node starts.",
    "quorate.produce.validation": "Whether every record of a batch is looked at, or its header alone.",
    "quorate.producer.ids.max": "How many producers the partitions of a broker remember together.",
    "quorate.producer.ids.per.partition.max": "How many producers a partition remembers.",
    "quorate.zookeeper.digest": "user:password with which a broker is known to ZooKeeper.",
    "quota.window.num": "How many windows the rate of a client is measured over.",
    "quota.window.size.seconds": "The length of a window that the rate of a client is measured over.",
    "reconnect.backoff.max.ms": "The longest pause before a broker connects to a controller again.",
    "reconnect.backoff.ms": "The first pause before a broker connects to a controller again.",
    "remote.fetch.max.wait.ms": "How long a fetch of what is stored remotely may take.",
    "remote.list.offsets.request.timeout.ms": "How long a look at offsets that are stored remotely may take.",
    "remote.log.index.file.cache.total.size.bytes": "Disk for indexes of what is stored remotely.",
    "remote.log.manager.copier.thread.pool.size": "Threads that store segments remotely.",
    "remote.log.manager.copy.max.bytes.per.second": "How fast segments are stored remotely.",
    "remote.log.manager.expiration.thread.pool.size": "Threads that delete remote segments.",
    "remote.log.manager.fetch.max.bytes.per.second": "How fast remote segments are read.",
    "remote.log.manager.follower.thread.pool.size": "Threads that follow what leaders store remotely.",
    "remote.log.reader.threads": "Threads that read remote segments.",
    "replica.alter.log.dirs.io.max.bytes.per.second": "How fast replicas move between directories.",
    "replica.fetch.backoff.ms": "The pause of a follower after a failed fetch.",
    "replica.fetch.max.bytes": "The most that a follower fetches of one partition.",
    "replica.fetch.min.bytes": "The least that a follower wants to be answered with.",
    "replica.fetch.response.max.bytes": "The most that a follower is answered with.",
    "replica.fetch.wait.max.ms": "How long the fetch of a follower waits for data.",
    "replica.high.watermark.checkpoint.interval.ms": "How often high watermarks are saved.",
    "replica.lag.time.max.ms": "How long a follower may be behind and still be in sync.",
    "replica.selector.class": "How the replica is chosen that a consumer reads from.",
    "replica.socket.timeout.ms": "How long a follower waits for an answer.",
    "replication.quota.window.num": "How many windows the rate of replication is measured over.",
    "replication.quota.window.size.seconds": "The length of a window that the rate of replication is measured"
    " over.",
    "request.timeout.ms": "How long a broker waits for the answer of a controller.",
    "reserved.broker.max.id": "The largest number that is given to brokers by hand: others come after it.",
    "share.coordinator.cached.buffer.max.bytes": "The largest buffer that the share coordinator keeps.",
    "socket.request.max.bytes": "The largest request.",
    "ssl.client.auth": "Whether clients show a certificate: required, requested or none.",
    "ssl.endpoint.identification.algorithm": "https: connections of the node check the name in a certificate."
    " Empty: they do not.",
    "ssl.key.password": "The password of the private key.",
    "ssl.keystore.certificate.chain": "The certificates of the node, as PEM text.",
    "ssl.keystore.key": "The private key of the node, as PEM text.",
    "ssl.keystore.location": "A file with the private key and the certificates of the node.",
    "ssl.keystore.type": "The format of key and certificates: PEM is the only one that is read.",
    "ssl.truststore.certificates": "The certificates of the authorities that are trusted, as PEM text.",
    "ssl.truststore.location": "A file with them.",
    "ssl.truststore.type": "The format of what is trusted: PEM is the only one that is read.",
    "transaction.partition.verification.enable": "Whether a leader asks the coordinator about a transaction"
    " before it takes its records.",
    "transaction.state.log.min.isr": "min.insync.replicas of the topic of transactions.",
    "transaction.state.log.num.partitions": "Partitions of the topic of transactions.",
    "transaction.state.log.replication.factor": "Replicas of the topic of transactions.",
    "unclean.leader.election.interval.ms": "How often partitions without a leader get one that is not in"
    " sync, where that is allowed.",
    "zookeeper.connect": "The ZooKeeper of the cluster, host:port,.../path; with it, and without"
    " process.roles, a broker is of ZooKeeper mode.",
    "zookeeper.connection.timeout.ms": "How long a broker that starts tries to reach ZooKeeper before it"
    " ends; for as long as it takes, if not given.",
    "zookeeper.max.in.flight.requests": "How many requests to ZooKeeper may wait for their answers.",
    "zookeeper.session.timeout.ms": "After what silence ZooKeeper takes a broker for dead.",
    "zookeeper.set.acl": "Whether only the brokers may change what they keep in ZooKeeper.",
}

_FAMILIES: Final[Mapping[str, str]] = {
    "sasl.": "How clients and brokers authenticate themselves over SASL.",
    "ssl.": "How connections are secured with TLS.",
}


def _of_topics(name: str) -> str | None:
    """Many keys of a broker are what topics have that do not say otherwise."""
    for topic_key, definition in TOPIC_CONFIGS.items():
        if name in definition.synonyms:
            unit = "" if name not in UNITS_MS else f" In {name.rpartition('.')[2]}."
            return f"For topics without {topic_key}: {TOPICS[topic_key]}{unit}"
    return None


def of_broker(name: str) -> str | None:
    """What a broker's key is for; None if we do not know it.

    >>> of_broker("log.retention.hours")
    'For topics without retention.ms: How old a segment may become before it goes; -1 is no limit. In hours.'
    """
    found = _BROKERS.get(name) or _of_topics(name)
    if found is None and name.startswith("group."):
        found = next((text for key, text in GROUPS.items() if group_synonym(key) == name), None)
    if found is None:
        found = next((text for prefix, text in _FAMILIES.items() if name.startswith(prefix)), None)
    return found
