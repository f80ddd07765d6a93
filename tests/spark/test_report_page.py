"""The page of `quorate report`, from facts at hand: right, whole, escaped, and of bounded size."""

from __future__ import annotations

import re
from html.parser import HTMLParser

from report_story import at, incident, some, state, story, term

from quorate.spark.report import render
from quorate.spark.report_chart import BARS_PER_LANE_MAX, LANES_MAX, Axis, Bar, thinned
from quorate.spark.report_facts import ClusterFacts, Some

VOID = {"meta", "line", "rect", "br"}


class Balance(HTMLParser):
    """Fails if an element is not closed where it should be; collects the text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:  # noqa: ARG002
        if tag not in VOID or (tag == "rect" and self.get_starttag_text()[-2:] != "/>"):  # type: ignore[index]
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"</{tag}> closes nothing"

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        """An element that closes itself."""

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def text_of(page: str) -> str:
    balance = Balance()
    balance.feed(page)
    assert balance.open == []
    return " ".join(" ".join(balance.text).split())


def rendered(facts: ClusterFacts | None = None) -> str:
    facts = facts or story()
    return render([facts], [facts.cluster_id], "2026-11-15 12:30:00 UTC")


def test_the_page_tells_the_story():
    text = text_of(rendered())
    for said in (
        "Cluster M5K2h8dYR1W0pXoQ7fZtUg",
        "2026-11-15 12:00:00 to 2026-11-15 12:06:00 UTC, 1,234 records of the metadata log.",
        "broker 2 was fenced at 12:01:07 after 9.0 s without a heartbeat; 412 partitions moved;"
        " 3 were leaderless for 1.2 s",
        "broker 1, epoch 61: unfenced from 2026-11-15 12:04:26.000 and still is",
        "broker 2, epoch 5: fenced from 2026-11-15 12:01:07.000 to 2026-11-15 12:02:01.000, 54.0 s",
        "controller 102, epoch 2 from 2026-11-15 12:03:01.300 and still is",
        "99.988 % of the time partitions had a leader",
        "2 of 3 steps of rolling restarts as they should be",
        "no, 4 were not",
        "member left (poll timeout)",
        "1,234 5.6 s 2026-11-15 12:05:50",
    ):
        assert said in text, said


def test_the_page_needs_nothing_from_elsewhere():
    page = rendered()
    assert not re.search(r"<(script|link|img|iframe|object|embed|base|form)\b", page)
    assert not re.search(r"(?:https?:)?//\w", page)
    assert "@import" not in page
    assert set(re.findall(r"url\(([^)]*)\)", page)) == {"#hatched"}
    assert "default-src 'none'" in page


def test_text_of_strangers_stays_text():
    evil = "<script>alert(1)</script>\"' onload=x & \x00 \u202e"
    facts = story(
        incidents=some(incident(1, 2, "fault", evil)),
        topics=Some([{**story().topics.rows[0], "topic": evil}], 1),
        rebalances=Some([{**story().rebalances.rows[0], "group_id": evil, "client_id": evil}], 1),
        terms=some(term(None, 1, 0, None)),
    )
    page = rendered(facts)
    assert "<script" not in page
    assert "\"' onload" not in page
    assert "\x00" not in page
    assert "\u202e" not in page
    assert text_of(page).count("<script>alert(1)</script>") >= 4
    assert "controller ?" in page


def test_a_cluster_of_which_nothing_is_known_has_a_page():
    empty = ClusterFacts("c", None, None, 0, 0)
    text = text_of(rendered(empty))
    for said in ("No broker ever left.", "No rolling restart was found.", "No topics.", "0 records"):
        assert said in text


def test_a_huge_history_makes_a_page_of_bounded_size():
    flaps = [
        state(broker, ("unfenced", "fenced")[number % 2], number, number + 1)
        for broker in range(200)
        for number in range(100)
    ]
    facts = story(
        states=Some(flaps, 5_000_000),
        terms=Some([term(101 + number % 3, number, number, number + 1) for number in range(5000)], 9000),
        topics=Some(story().topics.rows * 20, 100_000),
    )
    page = rendered(facts)
    assert len(page) < 3_000_000
    text = text_of(page)
    assert "Not shown: 4,980,000 older states of brokers and 4,000 older terms." in text
    assert f"and {200 + 3 + 1 - LANES_MAX} more lanes that are not shown" in text
    assert "60 of 100,000 rows shown" in text


def test_bars_too_thin_to_be_seen_are_drawn_as_one_in_the_worst_colour():
    axis = Axis(at(0), at(100_000))
    bars = [Bar(at(one), at(one + 1), "fenced" if one == 700 else "unfenced") for one in range(1000)]
    long = Bar(at(1000), at(100_000), "unfenced", title="the rest")
    drawn = thinned([*bars, long], axis)
    assert len(drawn) <= BARS_PER_LANE_MAX
    assert [one.state for one in drawn].count("fenced") == 1
    assert drawn[-1].title == "the rest"
    assert drawn[0].start == at(0)


def test_a_clock_that_stepped_back_does_not_break_the_chart():
    facts = story(states=some(state(1, "fenced", 50, 20), state(1, "unfenced", 20, None)))
    widths = [float(one) for one in re.findall(r'width="(-?[\d.]+)%"', rendered(facts))]
    assert min(widths) > 0


def test_several_clusters_stand_under_each_other():
    facts = [ClusterFacts(name, None, None, 0, 0) for name in ("a", "b")]
    page = render(facts, ["a", "b", "c"], "now")
    assert 'href="#cluster-1"' in page
    assert "1 more cluster in this warehouse is not shown." in text_of(page)
