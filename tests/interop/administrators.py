"""Other people's administration clients behind one face: topics, their partitions and configurations.

What is refused is returned as the error's code; 0 is none.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewPartitions as AioNewPartitions
from aiokafka.admin import NewTopic as AioNewTopic
from aiokafka.admin.config_resource import ConfigResource as AioConfigResource
from aiokafka.admin.config_resource import ConfigResourceType as AioConfigResourceType
from aiokafka.errors import KafkaError as AioKafkaError
from apache_tools import ApacheTools
from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
)
from kafka.admin import ConfigResource as PythonConfigResource
from kafka.admin import KafkaAdminClient
from kafka.errors import KafkaError

from quorate.client.admin import Admin, Resource, ResourceKind
from quorate.client.admin import NewTopic as OurNewTopic
from quorate.client.cluster import Cluster
from quorate.protocol.errors import ApiError, ErrorCode

DEADLINE_S = 60.0
_OF_TOPIC = 1  # where a value comes from, in replies


class Administrator(Protocol):
    def create(self, topic: str, partitions: int, replicas: int, config: dict[str, str]) -> int: ...

    def delete(self, topic: str) -> int: ...

    def add_partitions(self, topic: str, total: int) -> int: ...

    def alter(self, topic: str, key: str, value: str) -> int: ...

    def config(self, topic: str) -> dict[str, str]:
        """What the topic itself has."""

    def replicas(self, topic: str) -> dict[int, set[int]]:
        """The brokers of each partition; empty if there is no such topic."""

    def topics(self) -> set[str]: ...


class LibrdkafkaAdmin:
    def __init__(self, servers: str) -> None:
        self._client = AdminClient({"bootstrap.servers": servers})

    def create(self, topic: str, partitions: int, replicas: int, config: dict[str, str]) -> int:
        return _code(
            self._client.create_topics([NewTopic(topic, partitions, replicas, config=config)])[topic]
        )

    def delete(self, topic: str) -> int:
        return _code(self._client.delete_topics([topic])[topic])

    def add_partitions(self, topic: str, total: int) -> int:
        return _code(self._client.create_partitions([NewPartitions(topic, total)])[topic])

    def alter(self, topic: str, key: str, value: str) -> int:
        entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource("topic", topic, incremental_configs=[entry])
        return _code(self._client.incremental_alter_configs([resource])[resource])

    def config(self, topic: str) -> dict[str, str]:
        resource = ConfigResource("topic", topic)
        found = self._client.describe_configs([resource])[resource].result(DEADLINE_S)
        return {name: entry.value for name, entry in found.items() if entry.source == _OF_TOPIC}

    def replicas(self, topic: str) -> dict[int, set[int]]:
        try:
            found = self._client.describe_topics(TopicCollection([topic]))[topic].result(DEADLINE_S)
        except KafkaException as error:
            assert error.args[0].code() == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, error
            return {}
        return {one.id: {replica.id for replica in one.replicas} for one in found.partitions}

    def topics(self) -> set[str]:
        return set(self._client.list_topics(timeout=DEADLINE_S).topics)


def _code(future: Any) -> int:
    try:
        future.result(DEADLINE_S)
    except KafkaException as error:
        return int(error.args[0].code())
    return 0


class KafkaPythonAdmin:
    def __init__(self, servers: str) -> None:
        self._client = KafkaAdminClient(bootstrap_servers=servers)

    def close(self) -> None:
        """Ends its thread, which would trouble whatever runs after it."""
        self._client.close()

    def create(self, topic: str, partitions: int, replicas: int, config: dict[str, str]) -> int:
        new = {"num_partitions": partitions, "replication_factor": replicas, "configs": config}
        return self._code(lambda: self._client.create_topics({topic: new}))

    def delete(self, topic: str) -> int:
        return self._code(lambda: self._client.delete_topics([topic]))

    def add_partitions(self, topic: str, total: int) -> int:
        return self._code(lambda: self._client.create_partitions({topic: total}))

    def alter(self, topic: str, key: str, value: str) -> int:
        resource = PythonConfigResource("TOPIC", topic, {key: value})
        (said,) = self._client.alter_configs([resource])["topic"].values()
        error = re.match(r"\[Error (\d+)\]", str(said))
        return int(error[1]) if error else 0

    def _code(self, do: Callable[[], object]) -> int:
        try:
            do()
        except KafkaError as error:
            return int(error.errno)
        return 0

    def config(self, topic: str) -> dict[str, str]:
        found = self._client.describe_configs([PythonConfigResource("TOPIC", topic)], config_filter="all")
        (of_topic,) = [one for kind in found.values() for one in kind.values()]
        sources = ("DYNAMIC_TOPIC_CONFIG", _OF_TOPIC)
        return {name: one["value"] for name, one in of_topic.items() if one["config_source"] in sources}

    def replicas(self, topic: str) -> dict[int, set[int]]:
        (found,) = self._client.describe_topics([topic])
        return {one["partition_index"]: set(one["replica_nodes"]) for one in found["partitions"]}

    def topics(self) -> set[str]:
        return set(self._client.list_topics())


class AioKafkaAdmin:
    def __init__(self, servers: str) -> None:
        self._servers = servers

    def _ask(self, ask: Callable[[AIOKafkaAdminClient], Awaitable[Any]]) -> Any:
        async def connect_and_ask() -> Any:
            client = AIOKafkaAdminClient(bootstrap_servers=self._servers)
            await client.start()
            try:
                return await asyncio.wait_for(ask(client), DEADLINE_S)
            finally:
                await client.close()

        return asyncio.run(connect_and_ask())

    def create(self, topic: str, partitions: int, replicas: int, config: dict[str, str]) -> int:
        new = AioNewTopic(topic, partitions, replicas, topic_configs=config)
        return int(self._ask(lambda client: client.create_topics([new])).topic_errors[0][1])

    def delete(self, topic: str) -> int:
        return int(self._ask(lambda client: client.delete_topics([topic])).topic_error_codes[0][1])

    def add_partitions(self, topic: str, total: int) -> int:
        new = {topic: AioNewPartitions(total)}
        try:
            self._ask(lambda client: client.create_partitions(new))
        except AioKafkaError as error:
            return int(error.errno)
        return 0

    def alter(self, topic: str, key: str, value: str) -> int:
        resource = AioConfigResource(AioConfigResourceType.TOPIC, topic, {key: value})
        (answer,) = self._ask(lambda client: client.alter_configs([resource]))
        return int(answer.resources[0][0])

    def config(self, topic: str) -> dict[str, str]:
        resource = AioConfigResource(AioConfigResourceType.TOPIC, topic)
        (answer,) = self._ask(lambda client: client.describe_configs([resource]))
        return {name: value for name, value, _, source, *_ in answer.resources[0][4] if source == _OF_TOPIC}

    def replicas(self, topic: str) -> dict[int, set[int]]:
        if topic not in self.topics():
            return {}  # its way of asking would create it
        (found,) = self._ask(lambda client: client.describe_topics([topic]))
        return {one["partition"]: set(one["replicas"]) for one in found["partitions"]}

    def topics(self) -> set[str]:
        return set(self._ask(lambda client: client.list_topics()))


class JavaAdmin:
    """kafka-topics and kafka-configs."""

    def __init__(self, servers: str, tools: ApacheTools) -> None:
        self._servers = ("--bootstrap-server", servers)
        self._tools = tools

    def _code(self, tool: str, *arguments: str) -> int:
        code, printed = self._tools.ended(tool, *self._servers, *arguments)
        known = {
            "TopicExistsException": ErrorCode.TOPIC_ALREADY_EXISTS,
            "InvalidReplicationFactorException": ErrorCode.INVALID_REPLICATION_FACTOR,
            "InvalidPartitionsException": ErrorCode.INVALID_PARTITIONS,
            "InvalidConfigurationException": ErrorCode.INVALID_CONFIG,
            "ConfigException": ErrorCode.INVALID_CONFIG,  # the tool's own judgement
            "does not exist as expected": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        if not code:
            return 0
        return next((int(code) for words, code in known.items() if words in printed), -1)

    def create(self, topic: str, partitions: int, replicas: int, config: dict[str, str]) -> int:
        configs = [word for key, value in config.items() for word in ("--config", f"{key}={value}")]
        counts = ("--partitions", f"{partitions}", "--replication-factor", f"{replicas}")
        return self._code("topics", "--create", "--topic", topic, *counts, *configs)

    def delete(self, topic: str) -> int:
        return self._code("topics", "--delete", "--topic", topic)

    def add_partitions(self, topic: str, total: int) -> int:
        return self._code("topics", "--alter", "--topic", topic, "--partitions", f"{total}")

    def alter(self, topic: str, key: str, value: str) -> int:
        entity = ("--entity-type", "topics", "--entity-name", topic)
        return self._code("configs", *entity, "--alter", "--add-config", f"{key}={value}")

    def config(self, topic: str) -> dict[str, str]:
        entity = ("--entity-type", "topics", "--entity-name", topic)
        printed = self._tools.run("configs", *self._servers, *entity, "--describe")
        return dict(re.findall(r"^  ([\w.]+)=(\S*) sensitive", printed, re.MULTILINE))

    def replicas(self, topic: str) -> dict[int, set[int]]:
        code, printed = self._tools.ended("topics", *self._servers, "--describe", "--topic", topic)
        assert code == 0 or "does not exist" in printed, printed
        found = re.findall(r"Partition: (\d+)\t.*Replicas: ([\d,]+)\t", printed)
        return {int(one): set(map(int, replicas.split(","))) for one, replicas in found}

    def topics(self) -> set[str]:
        return set(self._tools.run("topics", *self._servers, "--list").split())


class OurAdmin:
    """Quorate's own client."""

    def __init__(self, servers: str) -> None:
        self._servers = servers

    def _ask(self, ask: Callable[[Admin], Awaitable[Any]]) -> Any:
        async def connect_and_ask() -> Any:
            async with Cluster(self._servers) as cluster:
                return await asyncio.wait_for(ask(Admin(cluster)), DEADLINE_S)

        return asyncio.run(connect_and_ask())

    def _code(self, ask: Callable[[Admin], Awaitable[Any]]) -> int:
        try:
            self._ask(ask)
        except ApiError as error:
            return int(error.code)
        return 0

    def create(self, topic: str, partitions: int, replicas: int, config: dict[str, str]) -> int:
        new = OurNewTopic(topic, partitions=partitions, replication_factor=replicas, configs=config)
        return self._code(lambda admin: admin.create_topics(new))

    def delete(self, topic: str) -> int:
        return self._code(lambda admin: admin.delete_topics(topic))

    def add_partitions(self, topic: str, total: int) -> int:
        return self._code(lambda admin: admin.create_partitions({topic: total}))

    def alter(self, topic: str, key: str, value: str) -> int:
        resource = Resource(ResourceKind.TOPIC, topic)
        return self._code(lambda admin: admin.alter_configs(resource, put={key: value}))

    def config(self, topic: str) -> dict[str, str]:
        resource = Resource(ResourceKind.TOPIC, topic)
        found = self._ask(lambda admin: admin.describe_configs(resource))
        return {name: one.value for name, one in found.items() if one.source == _OF_TOPIC}

    def replicas(self, topic: str) -> dict[int, set[int]]:
        try:
            found = self._ask(lambda admin: admin.describe_topics(topic))[topic]
        except ApiError as error:
            assert error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, error
            return {}
        return {index: set(one.replicas) for index, one in found.partitions.items()}

    def topics(self) -> set[str]:
        return set(self._ask(lambda admin: admin.list_topics()))
