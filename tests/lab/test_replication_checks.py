"""Who holds what was committed: the checker notices losses, and excuses only those that it must."""

from types import SimpleNamespace

import pytest

from quorate.controller.proposals import TopicPartition
from quorate.lab.outcome import Violation
from quorate.lab.replication_checks import ReplicationChecks
from quorate.metadata.log_format import encode_record
from quorate.metadata.records import PartitionChangeRecord, RegisterBrokerRecord
from quorate.protocol import batch as batches
from quorate.protocol.types import Uuid

KEY = TopicPartition("t", Uuid(bytes(15) + b"\x01"), 0)


class Partition:
    """As much of a partition as the checker looks at."""

    def __init__(self):
        self.losses = []
        self.checks = ReplicationChecks(self.losses.append, in_sync_min=2)

    def leads(self, broker_id, epoch, isr, committed, start=0):
        """The controller has said who is in sync, and the leader knows it."""
        self.controller_says(isr)
        leading = SimpleNamespace(
            leader_epoch=epoch, high_watermark=committed, epoch_start_offset=start, isr=tuple(isr)
        )
        self.checks.look(SimpleNamespace(key=KEY, broker_id=broker_id), leading)

    def controller_says(self, isr):
        self.checks.in_sync(KEY.topic_id, KEY.partition_id, frozenset(isr))


def change(**what):
    return PartitionChangeRecord(topic_id=KEY.topic_id, partition_id=KEY.partition_id, **what)


def registration(broker_id):
    return RegisterBrokerRecord(
        broker_id=broker_id,
        incarnation_id=KEY.topic_id,
        broker_epoch=9,
        end_points=[],
        features=[],
        rack=None,
    )


def metadata(*records):
    """A batch of the metadata log."""
    return bytes(
        batches.build([batches.Record(at, 0, None, encode_record(*one)) for at, one in enumerate(records)])
    )


def test_a_leader_without_what_a_survivor_has_is_noticed():
    partition = Partition()
    partition.leads(1, 0, {1, 2, 3}, 5)
    partition.checks.crashed(1)
    partition.checks.crashed(2)
    with pytest.raises(Violation, match="everything below 5 was committed, and broker 3 has it"):
        partition.leads(2, 1, {2}, 4, start=4)


def test_a_loss_is_excused_if_everybody_has_crashed():
    partition = Partition()
    partition.leads(1, 0, {1, 2}, 5)
    partition.checks.crashed(1)
    partition.checks.crashed(2)
    partition.leads(2, 1, {2}, 4, start=4)
    assert [(one.begin, one.end) for one in partition.losses] == [(4, 5)]


def test_one_that_left_while_enough_were_in_sync_is_not_counted_on():
    partition = Partition()
    partition.leads(1, 0, {1, 2, 3}, 5)
    partition.leads(1, 0, {1, 2}, 5)
    partition.checks.crashed(1)
    partition.checks.crashed(2)
    partition.leads(2, 1, {2}, 4, start=4)
    assert partition.losses


def test_one_that_left_while_too_few_were_in_sync_is_counted_on():
    partition = Partition()
    partition.leads(1, 0, {1, 2, 3}, 5)
    partition.leads(1, 0, {1, 2}, 5)
    partition.leads(1, 0, {1}, 5)
    partition.checks.crashed(1)
    with pytest.raises(Violation, match="broker 2 has it"):
        partition.leads(1, 1, {1}, 4, start=4)


def test_whoever_the_controller_does_not_count_on_is_not_counted_on_though_no_leader_heard_of_it():
    partition = Partition()
    partition.leads(1, 0, {1, 2, 3}, 5)
    partition.controller_says({1, 2})
    partition.checks.crashed(1)
    partition.checks.crashed(2)
    partition.leads(1, 1, {1}, 4, start=4)
    assert partition.losses


def test_who_is_in_sync_is_read_from_the_metadata_log():
    partition = Partition()
    partition.leads(1, 0, {1, 2, 3}, 5)
    partition.checks.committed(metadata((change(isr=[1, 2]), 0)))
    partition.checks.crashed(1)
    partition.checks.crashed(2)
    partition.leads(2, 1, {2}, 4, start=4)
    assert partition.losses


@pytest.mark.parametrize("registered", [1, 2])
def test_one_that_the_controller_takes_for_crashed_when_it_registers_is_not_counted_on(registered):
    partition = Partition()
    partition.leads(1, 0, {1, 2}, 5)
    partition.checks.committed(metadata((change(isr=[], eligible_leader_replicas=[1, 2]), 2)))
    partition.checks.crashed(1)
    partition.checks.committed(
        metadata((change(eligible_leader_replicas=[1]), 2), (registration(registered), 0))
    )
    if registered == 2:
        partition.leads(1, 1, {1}, 4, start=4)
        assert partition.losses
    else:  # then nothing says why 2 is not eligible any more
        with pytest.raises(Violation, match="broker 2 has it"):
            partition.leads(1, 1, {1}, 4, start=4)


def test_a_high_watermark_that_goes_back_and_two_leaders_of_an_epoch_are_noticed():
    partition = Partition()
    partition.leads(1, 0, {1, 2}, 5)
    with pytest.raises(Violation, match="went back from 5 to 4"):
        partition.leads(1, 0, {1, 2}, 4)
    with pytest.raises(Violation, match="two brokers lead"):
        partition.leads(2, 0, {1, 2}, 5)


def test_what_an_old_leader_commits_beyond_the_start_of_a_later_one_is_noticed():
    partition = Partition()
    partition.leads(1, 0, {1, 2}, 5)
    partition.leads(2, 1, {2, 3}, 5, start=5)
    with pytest.raises(Violation, match="epoch 1 began at 5"):
        partition.leads(1, 0, {1, 2}, 6)
