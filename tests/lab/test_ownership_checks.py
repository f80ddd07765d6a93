"""Who owns what in a group, by the coordinator's log and by its members: each promise can be seen broken."""

import pytest

from quorate.client.classic_membership import _assignment, _versioned
from quorate.client.metadata import TopicPartition
from quorate.coordinator.group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    GroupMetadataKey,
    GroupMetadataValue,
)
from quorate.lab.group_checks import GroupChecks
from quorate.lab.outcome import Violation
from quorate.lab.ownership_checks import OwnershipChecks
from quorate.protocol.types import Uuid

TOPIC = Uuid(bytes(15) + b"\x01")
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Log:
    """One partition of the coordinator's log, record by record."""

    def __init__(self):
        self.checks = OwnershipChecks()
        self.end_offset = 0

    def says(self, key, value):
        self.checks.applied(0, self.end_offset, key, value)
        self.end_offset += 1

    def holds(self, member, assigned=(), pending=(), group="g"):
        listed = ConsumerGroupCurrentMemberAssignmentValue.TopicPartitions
        value = ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=1,
            previous_member_epoch=0,
            state=0,
            assigned_partitions=[listed(topic_id=TOPIC, partitions=list(assigned))],
            partitions_pending_revocation=[listed(topic_id=TOPIC, partitions=list(pending))],
        )
        self.says(ConsumerGroupCurrentMemberAssignmentKey(group_id=group, member_id=member), value)

    def removes(self, member):
        self.says(ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id=member), None)
        self.says(ConsumerGroupMemberMetadataKey(group_id="g", member_id=member), None)

    def generation(self, number, **assignments):
        members = [
            GroupMetadataValue.MemberMetadata(
                member_id=member,
                client_id="",
                client_host="",
                session_timeout=1,
                subscription=b"",
                assignment=_versioned(_assignment([TopicPartition("t", one) for one in some]))
                if some
                else b"",
            )
            for member, some in assignments.items()
        ]
        value = GroupMetadataValue(
            protocol_type="consumer", generation=number, protocol="range", leader=None, members=members
        )
        self.says(GroupMetadataKey(group="g"), value)


@pytest.fixture
def log():
    return Log()


# Consumer groups, by the log


def test_a_partition_that_is_assigned_twice_is_noticed(log):
    log.holds("a", assigned=[0, 1])
    with pytest.raises(Violation, match="gives partition 1 to b, at offset 1, while a has not given it back"):
        log.holds("b", assigned=[1])


def test_a_partition_that_is_not_given_back_yet_still_has_its_owner(log):
    log.holds("a", assigned=[0, 1])
    log.holds("a", assigned=[0], pending=[1])
    with pytest.raises(Violation, match="a has not given it back"):
        log.holds("b", assigned=[1])


def test_what_was_given_back_may_be_given_to_another(log):
    log.holds("a", assigned=[0], pending=[1])
    log.holds("a", assigned=[0])
    log.holds("b", assigned=[1])
    assert log.checks.checks == 3


def test_whoever_is_no_member_holds_nothing(log):
    log.holds("a", assigned=[0])
    log.removes("a")
    log.holds("b", assigned=[0])
    log.says(ConsumerGroupMetadataKey(group_id="g"), None)
    log.holds("c", assigned=[0])


def test_groups_do_not_share_owners(log):
    log.holds("a", assigned=[0])
    log.holds("b", assigned=[0], group="another")


def test_a_log_whose_end_was_lost_is_read_anew(log):
    log.holds("a", assigned=[0])
    log.checks.lost(0)
    log.holds("b", assigned=[0])


# Classic groups, by the log


def test_an_assignment_that_gives_a_partition_to_two_is_noticed(log):
    log.generation(1, a=[0], b=[1])
    with pytest.raises(Violation, match="gives t-1 to a and to b in generation 2"):
        log.generation(2, a=[0, 1], b=[1])


def test_a_generation_that_goes_back_is_noticed(log):
    log.generation(3, a=[0])
    log.generation(4)
    with pytest.raises(Violation, match="goes back from generation 4 to 3"):
        log.generation(3, a=[0])


# What members believe


@pytest.fixture
def members(log):
    return GroupChecks(lambda _: True, log.checks.member_since)


def test_two_members_that_read_a_partition_in_different_epochs_are_noticed(log, members):
    log.holds("a", assigned=[0, 1])
    members.assigned("g", "one", "a", 1, [T0, T1])
    log.holds("a", assigned=[0])
    log.holds("b", assigned=[1])
    with pytest.raises(Violation, match="t-1 belongs to two and to one"):
        members.assigned("g", "two", "b", 2, [T1])


def test_a_member_that_was_put_out_may_not_know_it_yet(log, members):
    log.holds("a", assigned=[0, 1])
    members.assigned("g", "one", "a", 1, [T0, T1])
    log.removes("a")
    log.holds("b", assigned=[1])
    members.assigned("g", "two", "b", 2, [T1])


def test_a_member_that_joins_again_has_lost_what_it_had(log, members):
    log.holds("a", assigned=[0, 1])
    members.assigned("g", "one", "a", 1, [T0, T1])
    log.removes("a")
    log.holds("a")
    log.holds("b", assigned=[1])
    members.assigned("g", "two", "b", 3, [T1])
    members.assigned("g", "one", "a", 3, [])


def test_two_members_that_own_a_partition_in_one_generation_of_a_classic_group_are_noticed(members):
    members.assigned("g", "one", "a", 1, [T0])
    members.assigned("g", "two", "b", 2, [T0])  # the other one has not heard of it
    with pytest.raises(Violation, match="in generation 2"):
        members.assigned("g", "one", "a", 2, [T0, T1])


def test_a_generation_of_a_member_that_goes_back_is_noticed(members):
    members.assigned("g", "one", "a", 2, [T0])
    with pytest.raises(Violation, match="went back from 2 to 1"):
        members.assigned("g", "one", "a", 1, [T0])
