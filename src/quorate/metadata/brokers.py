"""Brokers and controllers as the metadata log knows them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from quorate.metadata.errors import ImageError
from quorate.metadata.records import (
    BrokerRegistrationChangeRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
)
from quorate.protocol.types import Uuid
from quorate.values import dataclass

__all__ = ["BrokerRegistration", "ControllerRegistration", "Listener", "SecurityProtocol"]


class SecurityProtocol:
    """How one talks on a listener; the numbers stand in the records."""

    NAMES: Final[Mapping[int, str]] = {0: "PLAINTEXT", 1: "SSL", 2: "SASL_PLAINTEXT", 3: "SASL_SSL"}


@dataclass(frozen=True, slots=True)
class Listener:
    name: str
    host: str
    port: int
    security_protocol: int = 0


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """One incarnation of a broker.

    `epoch` identifies it in every request; `registration_offset` is where its record stands in the log, which
    the broker must have read before it may be unfenced. Unfenced and not shutting down is *active*.
    """

    id: int
    epoch: int
    incarnation_id: Uuid
    listeners: tuple[Listener, ...]
    features: Mapping[str, tuple[int, int]]
    rack: str | None
    is_fenced: bool
    is_shutting_down: bool
    is_migrating: bool
    directories: tuple[Uuid, ...]  # online ones, sorted
    cordoned: tuple[Uuid, ...]
    registration_offset: int

    @property
    def is_active(self) -> bool:
        return not self.is_fenced and not self.is_shutting_down

    @classmethod
    def from_record(cls, record: RegisterBrokerRecord, offset: int) -> BrokerRegistration:
        return cls(
            id=record.broker_id,
            epoch=record.broker_epoch,
            incarnation_id=record.incarnation_id,
            listeners=tuple(
                Listener(one.name, one.host, one.port, one.security_protocol) for one in record.end_points
            ),
            features={
                one.name: (one.min_supported_version, one.max_supported_version) for one in record.features
            },
            rack=record.rack,
            is_fenced=record.fenced,
            is_shutting_down=record.in_controlled_shutdown,
            is_migrating=record.is_migrating_zk_broker,
            directories=tuple(sorted(record.log_dirs)),
            cordoned=tuple(record.cordoned_log_dirs or ()),
            registration_offset=offset,
        )

    def changed_by(self, record: BrokerRegistrationChangeRecord) -> BrokerRegistration:
        """This registration after a change."""
        if record.broker_epoch != self.epoch:
            raise ImageError(
                f"a change of broker {self.id} at epoch {record.broker_epoch},"
                f" but it is registered at {self.epoch}"
            )
        if record.fenced not in (-1, 0, 1) or record.in_controlled_shutdown not in (0, 1):
            raise ImageError(
                f"a change of broker {self.id} with fenced={record.fenced}"
                f" and in_controlled_shutdown={record.in_controlled_shutdown}"
            )
        return replace(
            self,
            is_fenced=record.fenced == 1 if record.fenced else self.is_fenced,
            is_shutting_down=self.is_shutting_down or record.in_controlled_shutdown == 1,
            directories=tuple(sorted(record.log_dirs)) if record.log_dirs else self.directories,
            cordoned=self.cordoned if record.cordoned_log_dirs is None else tuple(record.cordoned_log_dirs),
        )

    def to_record(self) -> RegisterBrokerRecord:
        return RegisterBrokerRecord(
            broker_id=self.id,
            is_migrating_zk_broker=self.is_migrating,
            incarnation_id=self.incarnation_id,
            broker_epoch=self.epoch,
            end_points=[
                RegisterBrokerRecord.BrokerEndpoint(
                    name=one.name, host=one.host, port=one.port, security_protocol=one.security_protocol
                )
                for one in self.listeners
            ],
            features=[
                RegisterBrokerRecord.BrokerFeature(
                    name=name, min_supported_version=lowest, max_supported_version=highest
                )
                for name, (lowest, highest) in self.features.items()
            ],
            rack=self.rack,
            fenced=self.is_fenced,
            in_controlled_shutdown=self.is_shutting_down,
            log_dirs=list(self.directories),
            cordoned_log_dirs=list(self.cordoned) or None,
        )


@dataclass(frozen=True, slots=True)
class ControllerRegistration:
    """What a controller says of itself: where it is, and which features it knows."""

    id: int
    incarnation_id: Uuid
    is_ready_to_migrate: bool
    listeners: tuple[Listener, ...]
    features: Mapping[str, tuple[int, int]]

    @classmethod
    def from_record(cls, record: RegisterControllerRecord) -> ControllerRegistration:
        return cls(
            id=record.controller_id,
            incarnation_id=record.incarnation_id,
            is_ready_to_migrate=record.zk_migration_ready,
            listeners=tuple(
                Listener(one.name, one.host, one.port, one.security_protocol) for one in record.end_points
            ),
            features={
                one.name: (one.min_supported_version, one.max_supported_version) for one in record.features
            },
        )

    def to_record(self) -> RegisterControllerRecord:
        return RegisterControllerRecord(
            controller_id=self.id,
            incarnation_id=self.incarnation_id,
            zk_migration_ready=self.is_ready_to_migrate,
            end_points=[
                RegisterControllerRecord.ControllerEndpoint(
                    name=one.name, host=one.host, port=one.port, security_protocol=one.security_protocol
                )
                for one in self.listeners
            ],
            features=[
                RegisterControllerRecord.ControllerFeature(
                    name=name, min_supported_version=lowest, max_supported_version=highest
                )
                for name, (lowest, highest) in self.features.items()
            ],
        )
