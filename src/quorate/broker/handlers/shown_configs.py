"""The configurations that a broker shows after a change, for the answer that waits until it does.

The controller does not say at which offset of the metadata a change stands. So a broker that has passed one
on looks for what was asked. Whoever changes the same at the same time may have made something else of it:
then the change was shown if anything of the resource is another than before.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from quorate.controller.configs import Operation
from quorate.metadata.image import ClusterImage
from quorate.protocol.api.admin import AlterConfigsRequest, IncrementalAlterConfigsRequest

__all__ = ["Resource", "change_of"]

Resource = AlterConfigsRequest.Resource | IncrementalAlterConfigsRequest.AlterConfigsResource
_Incremental = IncrementalAlterConfigsRequest.AlterConfigsResource
_Configs = Mapping[str, str]


def change_of(
    resources: Sequence[Resource], image: ClusterImage
) -> Callable[[Collection[tuple[int, str]]], Callable[[ClusterImage], bool]]:
    """To be called before the change. What comes back is given the types and names of those resources that
    were changed, and returns what says of an image whether it shows that."""
    before = {_key(one): dict(image.configs.get(_key(one), {})) for one in resources}

    def shown(changed: Collection[tuple[int, str]]) -> Callable[[ClusterImage], bool]:
        looked_for = [one for one in resources if _key(one) in changed]

        def shows(now: ClusterImage) -> bool:
            return all(
                (found := now.configs.get(_key(one), {})) != before[_key(one)] or _is_as_asked(one, found)
                for one in looked_for
            )

        return shows

    return shown


def _key(resource: Resource) -> tuple[int, str]:
    return resource.resource_type, resource.resource_name


def _is_as_asked(resource: Resource, configs: _Configs) -> bool:
    if isinstance(resource, _Incremental):
        return all(_is_done(one, configs) for one in resource.configs)
    return configs == {one.name: one.value for one in resource.configs}


def _is_done(config: _Incremental.AlterableConfig, configs: _Configs) -> bool:
    now, named = configs.get(config.name), _items(config.value)
    match config.config_operation:
        case Operation.SET:
            return now == config.value
        case Operation.DELETE:
            return now is None
        case Operation.APPEND:
            return named <= _items(now)
        case _:
            return named.isdisjoint(_items(now))


def _items(text: str | None) -> set[str]:
    return {one.strip() for one in (text or "").split(",") if one.strip()}
