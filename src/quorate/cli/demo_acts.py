"""The acts of the demo: what is done to the cluster, what is seen of it, and what must be so afterwards.

An act that cannot go on raises `ClusterError`; whatever it found out before is in the story.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from quorate.cli.demo_proof import Claim, check_consumer, check_records
from quorate.cli.demo_story import Story, wall_ms
from quorate.cli.demo_telling import Telling
from quorate.cli.demo_traffic import Traffic, create_topic, elect_preferred_leaders, read_topic
from quorate.cli.demo_watch import TIMEOUT_S, ClusterWatch
from quorate.testing.control import Launched

__all__ = ["ACTS", "BROKERS", "CONTROLLERS", "TOPIC", "Stage", "begin", "write_and_read"]

BROKERS: Final = 3
CONTROLLERS: Final = 3
TOPIC: Final = "orders"
PARTITIONS: Final = 12
REPLICAS: Final = 3
IN_SYNC_MIN: Final = 2
_SHUT_DOWN: Final = "shut down"  # why a broker is fenced that left in order


@dataclass(frozen=True, slots=True)
class Stage:
    """Everything that an act works with."""

    launched: Launched
    watch: ClusterWatch
    traffic: Traffic
    story: Story
    telling: Telling

    def claim(self, text: str, *, holds: bool, detail: str = "") -> None:
        self.telling.claim(self.story.claim(Claim(text, holds, detail)))


def begin(launched: Launched, watch: ClusterWatch, story: Story, telling: Telling, began: float) -> str:
    """The cluster starts. Returns where its brokers are."""
    telling.act(f"{CONTROLLERS} controllers and {BROKERS} brokers start, a process each")
    state = launched.wait_until_ready(TIMEOUT_S)
    active = watch.active()
    telling.say(f"ready after {_seconds(began)}; controller {active.id} leads at epoch {active.epoch}")
    story.facts |= {one: state[one] for one in ("cluster_id", "bootstrap_servers", "bootstrap_controllers")}
    story.began("start", nodes=[one["id"] for one in state["nodes"]], controller=active.id)
    return str(state["bootstrap_servers"])


def write_and_read(watch: ClusterWatch, story: Story, telling: Telling, bootstrap: str) -> Traffic:
    """A topic is created, and from now on there is traffic."""
    telling.act(f"A topic: {PARTITIONS} partitions, {REPLICAS} replicas, min.insync.replicas={IN_SYNC_MIN}")
    with story.step("create-topic", topic=TOPIC, partitions=PARTITIONS, replicas=REPLICAS):
        create_topic(bootstrap, TOPIC, partitions=PARTITIONS, replicas=REPLICAS, in_sync_min=IN_SYNC_MIN)
        traffic = Traffic(bootstrap, TOPIC, PARTITIONS)
        traffic.start()
    telling.counts = lambda: traffic.counts
    try:
        traffic.wait_until_written_everywhere(TIMEOUT_S)
        watch.wait(lambda: traffic.counts.read, "the consumer to read")
    except BaseException:
        traffic.close()
        raise
    telling.say("records are written (acks=all, idempotent) and read from now on")
    return traffic


def kill_broker(stage: Stage) -> None:
    watch, traffic = stage.watch, stage.traffic
    brokers = watch.brokers()
    victim = max(brokers, key=lambda one: (brokers[one]["leaders"], -one))
    led = brokers[victim]["leaders"]
    stage.telling.act(f"Broker {victim}, which leads {led} partitions, is killed without mercy")
    traffic.take_slowest_ms()
    with stage.story.step("kill", node=victim, role="broker", epoch=brokers[victim]["epoch"]) as step:
        stage.launched.order("kill", victim)
        watch.wait(lambda: watch.brokers()[victim]["state"] == "fenced", f"broker {victim} to be fenced")
        fenced = watch.event("BrokerFenced", step["at_ms"], victim)
        left = watch.brokers()[victim]["leaders"]
        step |= {"fenced_at_ms": fenced["time_ms"], "leaderships": fenced["leaderships"], "left": left}
        after_s = (fenced["time_ms"] - step["at_ms"]) / 1000
        stage.telling.say(
            f"fenced after {after_s:.1f} s ({fenced['check']}): {led - left} leaders have moved"
        )
        traffic.wait_until_written_everywhere(TIMEOUT_S)
    waited_s = traffic.take_slowest_ms() / 1000
    stage.telling.say(f"every partition takes records again; the slowest waited {waited_s:.1f} s")
    stage.claim(
        f"broker {victim} was fenced, and leads nothing",
        holds=left == 0,
        detail="" if left == 0 else f"it leads {left}",
    )
    leaderless = watch.partitions()["leaderless"]
    stage.claim("every partition has a leader", holds=leaderless == 0, detail=_unless_zero(leaderless))


def bring_broker_back(stage: Stage) -> None:
    dead = [one["id"] for one in stage.launched.state()["nodes"] if one["state"] == "dead"]
    for node_id in dead:
        stage.telling.act(f"Broker {node_id} comes back")
        before = stage.watch.brokers()[node_id]["epoch"]
        with stage.story.step("restart", node=node_id, role="broker") as step:
            began = time.monotonic()
            stage.launched.restart(node_id, TIMEOUT_S)
            step["epoch"] = epoch = stage.watch.brokers()[node_id]["epoch"]
            stage.telling.say(f"unfenced after {_seconds(began)}, with broker epoch {epoch}")
            _wait_until_in_sync(stage)
            stage.telling.say(f"in sync with every leader after {_seconds(began)}")
        _bring_leaders_home(stage)
        stage.claim(f"broker {node_id} has a higher epoch than before", holds=epoch > before)


def roll(stage: Stage) -> None:
    """Every broker is restarted in order, each when the one before is in sync again."""
    stage.telling.act("Every broker is restarted gracefully, one after the other")
    failed, ways_out = stage.traffic.counts.failed, {}
    stage.traffic.take_slowest_ms()
    for node_id in stage.watch.node_ids("broker"):
        with stage.story.step("roll", node=node_id, role="broker") as step:
            led = stage.watch.brokers()[node_id]["leaders"]
            began = time.monotonic()
            stage.launched.stop(node_id, TIMEOUT_S)
            fenced = stage.watch.event("BrokerFenced", step["at_ms"], node_id)
            stopped = _seconds(began)
            stage.launched.start(node_id)
            stage.launched.wait_until_ready(TIMEOUT_S, node_id)
            _wait_until_in_sync(stage)
            step |= {
                "leaderships": led,
                "check": fenced["check"],
                "fenced_at_ms": fenced["time_ms"],
                "epoch": stage.watch.brokers()[node_id]["epoch"],
            }
        ways_out[node_id] = fenced["check"]
        stage.telling.say(
            f"broker {node_id} hands over {led} leaders: gone after {stopped},"
            f" in sync again after {_seconds(began)}"
        )
    stage.traffic.wait_until_written_everywhere(TIMEOUT_S)
    slowest_ms = stage.traffic.take_slowest_ms()
    _bring_leaders_home(stage)
    others = {one: why for one, why in ways_out.items() if why != _SHUT_DOWN}
    stage.claim("every broker left by controlled shutdown", holds=not others, detail=str(others or ""))
    failed = stage.traffic.counts.failed - failed
    detail = f"the slowest took {slowest_ms:.0f} ms" if not failed else f"{failed:,} failed"
    stage.claim("no write failed meanwhile", holds=not failed, detail=detail)


def kill_controller(stage: Stage) -> None:
    watch = stage.watch
    old = watch.active()
    stage.telling.act(f"Controller {old.id}, which leads at epoch {old.epoch}, is killed")
    with stage.story.step("kill", node=old.id, role="controller", epoch=old.epoch) as step:
        began = time.monotonic()
        stage.launched.order("kill", old.id)
        new = watch.active()
        step |= {"led_at_ms": wall_ms(), "successor": new.id, "successor_epoch": new.epoch}
        stage.telling.say(f"controller {new.id} leads at epoch {new.epoch}, after {_seconds(began)}")
        stage.traffic.wait_until_written_everywhere(TIMEOUT_S)
    with stage.story.step("restart", node=old.id, role="controller"):
        began = time.monotonic()
        stage.launched.restart(old.id, TIMEOUT_S)
        what = f"controller {old.id} to catch up"
        watch.wait(lambda: watch.voters()[old.id]["is_caught_up"], what)
        stage.telling.say(f"controller {old.id} is back, and has caught up after {_seconds(began)}")
    stage.claim(
        "another controller leads, at a higher epoch",
        holds=new.id != old.id and new.epoch > old.epoch,
        detail=f"{new.id} at {new.epoch}",
    )
    fenced = [one for one, broker in watch.brokers().items() if broker["state"] != "active"]
    stage.claim("no broker was fenced by that", holds=not fenced, detail=", ".join(map(str, fenced)))


def prove(stage: Stage) -> None:
    """The traffic ends, and somebody else reads everything from the beginning."""
    stage.telling.act("The proof: everything is read again, from the beginning")
    traffic = stage.traffic
    traffic.finish(TIMEOUT_S)
    bootstrap = stage.launched.state()["bootstrap_servers"]
    found = read_topic(bootstrap, TOPIC, PARTITIONS, TIMEOUT_S)
    counts = traffic.counts
    for claim in check_records(traffic.acknowledged, traffic.sent, found):
        stage.telling.claim(stage.story.claim(claim))
    stage.telling.claim(stage.story.claim(check_consumer(found, traffic.consumed)))
    reasons = "; ".join(sorted(set(traffic.failed.values()))[:2])
    stage.claim("every record that was sent is acknowledged", holds=not counts.failed, detail=reasons)
    stage.story.note({**counts._asdict(), "topic": TOPIC, "partitions": PARTITIONS, "found": len(found)})


ACTS: Final[tuple[Callable[[Stage], None], ...]] = (
    kill_broker,
    bring_broker_back,
    roll,
    kill_controller,
    prove,
)
"""In the order of the story, once there is traffic."""


def _wait_until_in_sync(stage: Stage) -> None:
    """Until no partition lacks a replica: only then may the next broker go."""
    what = "every replica to be in sync"
    stage.watch.wait(lambda: stage.watch.partitions()["under_replicated"] == 0, what)


def _bring_leaders_home(stage: Stage) -> None:
    """Whoever took over from a broker that left goes on leading, until somebody asks for this."""
    with stage.story.step("elect-preferred") as step:
        elect_preferred_leaders(stage.launched.state()["bootstrap_servers"])
        step["leaders"] = leaders = {one: broker["leaders"] for one, broker in stage.watch.brokers().items()}
    shares = ", ".join(f"{count} on broker {one}" for one, count in leaders.items())
    stage.telling.say(f"preferred leaders lead again: {shares}")


def _unless_zero(count: int) -> str:
    return f"{count:,} have none" if count else ""


def _seconds(began: float) -> str:
    return f"{time.monotonic() - began:.1f} s"
