"""``failback admin``: the mqadmin subset people need beside a run.

Names are mqadmin's. Every answer says which address gave it: a slave answers some questions
too, with older values.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

from failback.cli.administer.each_broker import Asked, Told, members_of, of_each
from failback.cli.administer.progress import GROUP_HEADERS, HEADERS, progress_of, progress_of_all
from failback.cli.administer.resetting import Goal, OneQueue, reset_to_time, store_one
from failback.cli.shared import commands
from failback.cli.shared.asking import (
    NotThere,
    ask,
    is_address,
    meant_time,
    route_of,
)
from failback.cli.shared.clusters import NO_CLUSTER, ClusterOptions, cluster_options
from failback.cli.shared.commands import add, new_group
from failback.cli.shared.errors import INCONCLUSIVE
from failback.cli.shared.options import JsonOption, argument, flag, option
from failback.cli.shared.output import print_json, print_table, say
from failback.client.remoting.addresses import addresses_of
from failback.protocol.codes import PUT_ASIDE_TOPIC
from failback.protocol.errors import ConfigError
from failback.protocol.message import PUT_ASIDE_FOR, PUT_ASIDE_OFFSET, PUT_ASIDE_REASON

if TYPE_CHECKING:
    from failback.client.admin.admin import AdminClient

app = new_group(
    "Query and manage brokers and name servers; commands have mqadmin's names.",
    examples=(
        "failback admin clusterList -n 10.0.0.1:9876",
        "failback admin consumerProgress -g billing",
    ),
)


def command(name: str, *examples: str) -> Callable[[Callable[..., Any]], None]:
    """Make a function a command of this group."""
    made = commands.command(name, *examples)
    return lambda function: add(app, made(cluster_options()(function)))


BrokerOption = Annotated[
    str, option("--broker, -b", "BROKER", "HOST:PORT of one broker, or a name: its master.")
]
GroupOption = Annotated[str, option("--group, -g", "GROUP", "Consumer group.")]
TopicOption = Annotated[str, option("--topic, -t", "TOPIC", "Topic.")]

_Answer = TypeVar("_Answer")
MOST_QUEUES: Final = 1024
"""As many as a Topic resource may have."""


@command("clusterList", "failback admin clusterList -n 10.0.0.1:9876")
def cluster_list(cluster: ClusterOptions = NO_CLUSTER, json: JsonOption = False) -> None:
    """List brokers: cluster, name, id, address, version, log end, messages/s in and out."""

    async def look(admin: AdminClient, cluster: str, asked: Asked, told: Told) -> None:
        row = {
            "cluster": cluster,
            "broker": asked.broker,
            "id": asked.broker_id,
            "address": asked.address,
            "version": "no answer",
            "logEnd": "",
            "inTps": "",
            "outTps": "",
        }
        told.rows.append(row)
        runtime = await admin.runtime_info(asked.address)
        row["version"] = runtime.get("brokerVersionDesc", "")
        row["logEnd"] = runtime.get("commitLogMaxOffset", "")
        row["inTps"] = _rate(runtime.get("putTps", ""))
        row["outTps"] = _rate(runtime.get("getTransferedTps", ""))

    async def question(admin: AdminClient) -> Told:
        info = await admin.cluster_info()
        members = info.members()
        clusters = {(name, number): cluster for cluster, name, number, _ in members}
        nowhere = sorted(info.broker_addr_table.keys() - {each.broker_name for each in members})
        return await of_each(
            [
                *(Asked(name, number, addr) for _, name, number, addr in members),
                *(Asked(name, 0, "") for name in nowhere),
            ],
            lambda asked, told: look(admin, clusters[asked[:2]], asked, told),
        )

    told = ask(cluster.found(), question)
    if not told.rows:
        raise NotThere("the name server knows no broker")
    headers = ("CLUSTER", "BROKER", "ID", "ADDRESS", "VERSION", "LOG END", "IN", "OUT")
    _show(headers, told.rows, json)
    told.end()


@command("topicList", "failback admin topicList")
def topic_list(cluster: ClusterOptions = NO_CLUSTER, json: JsonOption = False) -> None:
    """List the topics that the name server knows: system, retry and dead-letter ones too."""
    rows = [{"topic": each} for each in ask(cluster.found(), lambda admin: admin.topic_list())]
    if not rows:
        raise NotThere("the name server knows no topic")
    _show(("TOPIC",), rows, json)


@command("brokerStatus", "failback admin brokerStatus -b broker-a")
def broker_status(
    broker: BrokerOption, cluster: ClusterOptions = NO_CLUSTER, json: JsonOption = False
) -> None:
    """Show what a broker says of itself: version, start, rates, log end, disk, queues."""
    _show_values(_ask_broker(broker, cluster, lambda admin, at: admin.runtime_info(at)), json)


@command("topicRoute", "failback admin topicRoute -t orders")
def topic_route(
    topic: TopicOption,
    cluster: ClusterOptions = NO_CLUSTER,
    json: JsonOption = False,
) -> None:
    """Show where a topic lives: brokers, queues, permission."""

    async def question(admin: AdminClient) -> Told:
        route = await route_of(admin, topic)
        brokers = {broker.broker_name: broker for broker in route.broker_datas}
        queues = {queue.broker_name: queue for queue in route.queue_datas}
        told = Told()
        for name in sorted({*brokers, *queues}):
            if name not in brokers or not brokers[name].broker_addrs:
                told.miss(name, "the name server lists queues there, and no address")
            elif name not in queues:
                told.miss(name, f"the name server lists no queue of {topic} there")
            else:
                addresses = brokers[name].broker_addrs
                told.rows.append(
                    {
                        "cluster": brokers[name].cluster,
                        "broker": name,
                        "read": queues[name].read_queue_nums,
                        "write": queues[name].write_queue_nums,
                        "perm": queues[name].perm,
                        "addresses": {str(k): v for k, v in sorted(addresses.items())},
                    }
                )
        return told

    told = ask(cluster.found(), question)
    _show(("CLUSTER", "BROKER", "READ", "WRITE", "PERM", "ADDRESSES"), told.rows, json)
    told.end()


@command(
    "consumerProgress",
    "failback admin consumerProgress               every group",
    "failback admin consumerProgress -g billing    its queues",
)
def consumer_progress(
    group: Annotated[
        str | None, option("--group, -g", "GROUP", "Consumer group (default: a line for each).")
    ] = None,
    topic: Annotated[
        str | None, option("--topic, -t", "TOPIC", "One topic only (default: all).")
    ] = None,
    cluster: ClusterOptions = NO_CLUSTER,
    json: JsonOption = False,
) -> None:
    """Show a group's offsets per queue, what is odd about them, and which address answered.

    Lag counts what is stored: neither what has expired, nor what lies beyond a queue's end.
    """
    if group is None:
        if topic is not None:
            raise ConfigError("--topic", "goes with --group")
        told = ask(cluster.found(), progress_of_all)
        if not told.rows and not told.problems:
            raise NotThere("no broker has a consumer group but its own")
        _show(GROUP_HEADERS, told.rows, json)
        told.end()
        return
    seen = ask(cluster.found(), lambda admin: progress_of(admin, group, topic))
    if seen.told.rows:
        _show(HEADERS, seen.told.rows, json)
    elif not seen.told.problems:
        raise seen.missing(topic)
    else:
        seen.told.miss("", str(seen.missing(topic)), INCONCLUSIVE)
    seen.told.end()


@command("updateTopic", "failback admin updateTopic -t failback-probe -b broker-a -r 4 -w 4")
def update_topic(
    topic: TopicOption,
    broker: BrokerOption,
    read_queues: Annotated[
        int, option("--read-queues, -r", "N", "Queues to read from.", min=1, max=MOST_QUEUES)
    ] = 8,
    write_queues: Annotated[
        int, option("--write-queues, -w", "N", "Queues to write to.", min=1, max=MOST_QUEUES)
    ] = 8,
    yes: Annotated[bool, flag("--yes", "Take more queues to write to than are read.")] = False,
    cluster: ClusterOptions = NO_CLUSTER,
) -> None:
    """Create or replace a topic on one broker, to be read and written. Every field is sent."""
    from failback.protocol.route import TopicConfig

    if write_queues > read_queues and not yes:
        unread = f"no consumer reads queues {read_queues} to {write_queues - 1}"
        more = f"{write_queues} are more than the {read_queues} that are read"
        raise ConfigError("--write-queues", f"{more}, and {unread}; --yes takes it all the same")
    config = TopicConfig(topic, read_queues, write_queues)
    _ask_broker(broker, cluster, lambda admin, addr: admin.create_topic(addr, config))
    say(f"topic {topic} is set on {broker}")


@command("updateSubGroup", "failback admin updateSubGroup -g billing -b broker-a --retry-max 3")
def update_sub_group(
    group: GroupOption,
    broker: BrokerOption,
    consume_enable: Annotated[
        bool, flag("--consume-enable/--no-consume-enable", "Whether it may consume.")
    ] = True,
    consume_from_min: Annotated[
        bool, flag("--consume-from-min/--no-consume-from-min", "Start at the first message.")
    ] = True,
    consume_broadcast: Annotated[
        bool, flag("--consume-broadcast/--no-consume-broadcast", "Allow broadcasting.")
    ] = True,
    retry_queues: Annotated[
        int, option("--retry-queues", "N", "Queues of the retry topic.", min=1, max=MOST_QUEUES)
    ] = 1,
    retry_max: Annotated[
        int, option("--retry-max", "N", "Deliveries before the dead-letter queue.", min=-1)
    ] = 16,
    broker_id: Annotated[
        int, option("--broker-id", "N", "Id suggested to fast readers.", min=0)
    ] = 0,
    slow_broker_id: Annotated[
        int, option("--slow-broker-id", "N", "Id suggested to slow readers.", min=0)
    ] = 1,
    cluster: ClusterOptions = NO_CLUSTER,
) -> None:
    """Create or replace a consumer group on one broker. Every field is sent."""
    from failback.protocol.names import is_reserved_group
    from failback.protocol.route import SubscriptionGroupConfig

    if is_reserved_group(group):
        raise ConfigError("--group", f"{group} is a system group: brokers and commands use it")
    config = SubscriptionGroupConfig(
        group_name=group,
        consume_enable=consume_enable,
        consume_from_min_enable=consume_from_min,
        consume_broadcast_enable=consume_broadcast,
        retry_queue_nums=retry_queues,
        retry_max_times=retry_max,
        broker_id=broker_id,
        which_broker_when_consume_slowly=slow_broker_id,
    )
    _ask_broker(broker, cluster, lambda admin, addr: admin.create_group(addr, config))
    say(f"group {group} is set on {broker}")


@command("getBrokerConfig", "failback admin getBrokerConfig -b broker-a -k flushDiskType")
def get_broker_config(
    broker: BrokerOption,
    key: Annotated[
        list[str] | None, option("--key, -k", "KEY", "Only this key (default: all).")
    ] = None,
    cluster: ClusterOptions = NO_CLUSTER,
    json: JsonOption = False,
) -> None:
    """Show a broker's live settings."""
    found = _ask_broker(broker, cluster, lambda admin, addr: admin.broker_config(addr))
    if key:
        _known(found, key, broker)
        found = {name: found[name] for name in key}
    _show_values(found, json)


@command("updateBrokerConfig", "failback admin updateBrokerConfig -b broker-a slaveReadEnable=true")
def update_broker_config(
    broker: BrokerOption,
    setting: Annotated[list[str], argument("KEY=VALUE", "A setting and its new value.")],
    cluster: ClusterOptions = NO_CLUSTER,
) -> None:
    """Change live settings of a broker, and show what it says afterwards.

    The broker answers success for names it does not know, so only the read-back counts.
    """
    from failback.operator.engines.catalogue import same_value

    wanted: dict[str, str] = {}
    for text in setting:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise ConfigError("SETTING", f'must be key=value, got "{text}"')
        wanted[name] = value

    async def change(admin: AdminClient, addr: str) -> tuple[dict[str, str], dict[str, str]]:
        before = await admin.broker_config(addr)
        _known(before, list(wanted), broker)
        await admin.update_broker_config(addr, wanted)
        return before, await admin.broker_config(addr)

    before, after = _ask_broker(broker, cluster, change)
    rows = [
        {"key": name, "before": before.get(name), "wanted": value, "now": after.get(name)}
        for name, value in wanted.items()
    ]
    _show(("KEY", "BEFORE", "WANTED", "NOW"), rows, False)
    taken = (same_value(key, value.strip(), after.get(key, "")) for key, value in wanted.items())
    if not all(taken):
        raise ConfigError("SETTING", f"{broker} did not take every value")


@command(
    "resetOffset",
    "failback admin resetOffset -g billing -t orders --time 2026-01-31T12:00:00",
    "failback admin resetOffset -g billing -t orders --queue 0 --offset 4711",
)
def reset_offset(
    group: GroupOption,
    topic: TopicOption,
    time: Annotated[
        str, option("--time", "TIME", "ISO time, milliseconds since 1970, or now: the end.")
    ] = "",
    broker: Annotated[
        str,
        option(
            "--broker",
            "NAME",
            "With --offset: the broker's name (default: the only one that has the queue).",
        ),
    ] = "",
    queue: Annotated[
        int | None, option("--queue", "N", "With --offset: the queue's id.", min=0)
    ] = None,
    offset: Annotated[
        int | None, option("--offset", "N", "Store this offset of one queue.", min=0)
    ] = None,
    yes: Annotated[
        bool, flag("--yes", "Take a time or an offset that can hardly be meant as it is.")
    ] = False,
    cluster: ClusterOptions = NO_CLUSTER,
    json: JsonOption = False,
) -> None:
    """Set a group's offsets to a time, on every master: through its members while it has any.

    With --queue and --offset one offset is stored on the master. Members that run keep what they
    have in memory and store it again; who takes the queue next starts from it. What has no effect
    because of members is said, and the command ends with 1.
    """
    if offset is not None or queue is not None or broker:
        if offset is None or queue is None or time:
            raise ConfigError("--offset", "goes with --queue, and without --time")
        wanted = OneQueue(group, topic, broker, queue, offset, yes)
        told = ask(cluster.found(), lambda admin: store_one(admin, wanted))
    else:
        if not time:
            raise ConfigError("--time", "is missing (or --queue and --offset)")
        goal = Goal(group, topic, meant_time(time, yes=yes), yes)
        told = ask(cluster.found(), lambda admin: reset_to_time(admin, goal))
    if told.rows or json:
        _show(("BROKER", "QUEUE", "OFFSET", "HOW"), told.rows, json)
    told.end()


@command("queryMsgByKey", "failback admin queryMsgByKey -t orders -k order-4711")
def query_msg_by_key(
    topic: TopicOption,
    key: Annotated[str, option("--key, -k", "KEY", "One of the message's KEYS.")],
    cluster: ClusterOptions = NO_CLUSTER,
    json: JsonOption = False,
) -> None:
    """Show where the messages with a key are: the newest 64 of every broker."""
    _show_messages(cluster, json, topic, key, unique=False)


@command(
    "queryMsgByUniqueKey",
    "failback admin queryMsgByUniqueKey -t orders -i 7F00000100002A9F0000000000000000",
)
def query_msg_by_unique_key(
    topic: TopicOption,
    message_id: Annotated[str, option("--msgId, -i", "ID", "The id that clients show.")],
    cluster: ClusterOptions = NO_CLUSTER,
    json: JsonOption = False,
) -> None:
    """Show where a message is; two lines are two records, of a producer that sent it again."""
    _show_messages(cluster, json, topic, message_id, unique=True)


@command(
    "putAside", "failback admin putAside -b broker-a", "failback admin putAside -b broker-a -c 5"
)
def put_aside(
    broker: BrokerOption,
    count: Annotated[int, option("--count, -c", "N", "The newest so many.", min=1)] = 32,
    cluster: ClusterOptions = NO_CLUSTER,
    json: JsonOption = False,
) -> None:
    """Show messages that a broker could not deliver: what they were for, and what prevented it.

    Retries that can't be delivered are in their group's dead letters instead.
    """

    async def question(admin: AdminClient, addr: str) -> list[dict[str, Any]]:
        end = await admin.max_offset(addr, PUT_ASIDE_TOPIC, 0)
        first = max(await admin.min_offset(addr, PUT_ASIDE_TOPIC, 0), end - count)
        rows = []
        for offset in range(first, end):
            page = await admin.consume_queue(addr, PUT_ASIDE_TOPIC, 0, offset, 1)
            for entry in page.queue_data:
                message = await admin.view_message(addr, entry.physic_offset)
                known = message.properties
                rows.append(
                    {
                        "offset": offset,
                        "stored": message.store_timestamp,
                        "topic": known.get(PUT_ASIDE_FOR, ""),
                        "reason": known.get(PUT_ASIDE_REASON, ""),
                        "record": known.get(PUT_ASIDE_OFFSET, ""),
                        "bytes": len(message.body),
                        "id": message.msg_id,
                        "keys": message.keys or "",
                    }
                )
        return rows

    rows = _ask_broker(broker, cluster, question)
    if not rows and not json:
        say(f"{broker} has put no message aside")
        return
    _show(("OFFSET", "STORED", "TOPIC", "REASON", "RECORD", "BYTES", "ID", "KEYS"), rows, json)


def _show_messages(
    cluster: ClusterOptions, json: bool, topic: str, key: str, *, unique: bool
) -> None:
    async def look(admin: AdminClient, asked: Asked, told: Told) -> None:
        told.rows += [
            {
                "broker": asked.broker,
                "queue": found.queue_id,
                "offset": found.queue_offset,
                "stored": found.store_timestamp,
                "redeliveries": found.reconsume_times,
                "id": found.msg_id,
                "keys": found.keys or "",
                "answeredBy": asked.said_by,
            }
            for found in await admin.query_message(asked.address, topic, key, unique=unique)
        ]

    async def question(admin: AdminClient) -> Told:
        brokers = members_of((await route_of(admin, topic)).broker_datas)
        return await of_each(brokers, lambda asked, told: look(admin, asked, told))

    told = ask(cluster.found(), question)
    if told.rows:
        headers = (
            "BROKER", "QUEUE", "OFFSET", "STORED", "REDELIVERIES", "ID", "KEYS", "ANSWERED BY",
        )  # fmt: skip
        _show(headers, told.rows, json)
    else:
        who = "no broker that answered" if told.problems else "no broker"
        what = f'has a message of {topic} with {"id" if unique else "key"} "{key}"'
        if not told.problems:
            raise NotThere(f"{who} {what}")
        told.miss("", f"{who} {what}", INCONCLUSIVE)
    told.end()


def _ask_broker(
    broker: str,
    cluster: ClusterOptions,
    question: Callable[[AdminClient, str], Awaitable[_Answer]],
) -> _Answer:
    """Ask one broker, named by its address or by its name: then its master."""
    if is_address(broker) or broker.replace(".", "").isdecimal():
        (address,) = addresses_of("--broker", broker) or (broker,)
        return ask(cluster.named(), lambda admin: question(admin, address))

    async def of_name(admin: AdminClient) -> _Answer:
        return await question(admin, await _master_of(admin, broker))

    return ask(cluster.found(), of_name)


async def _master_of(admin: AdminClient, broker: str) -> str:
    from failback.common.text import did_you_mean

    members = (await admin.cluster_info()).members()
    names = sorted({name for _, name, _, _ in members})
    found = [addr for _, name, broker_id, addr in members if (name, broker_id) == (broker, 0)]
    if not found:
        near = did_you_mean(broker, names) or f"; there is {', '.join(names) or 'none'}"
        problem = "has no master now" if broker in names else f"is no broker of the cluster{near}"
        raise ConfigError("--broker", f'"{broker}" {problem}')
    return found[0]


def _rate(rates: str) -> str:
    """Return the first of a broker's averages, of the last ten seconds, as mqadmin prints it."""
    first = rates.partition(" ")[0]
    try:
        return f"{float(first):.2f}"
    except ValueError:
        return first


def _known(settings: dict[str, str], keys: Sequence[str], broker: str) -> None:
    from failback.common.text import did_you_mean

    for key in keys:
        if key not in settings:
            near = did_you_mean(key, settings)
            raise ConfigError("KEY", f'broker {broker} has no setting "{key}"{near}')


def _show(headers: Sequence[str], rows: Sequence[dict[str, Any]], json: bool) -> None:
    if json:
        print_json(list(rows))
    else:
        print_table(headers, [[_text(cell) for cell in row.values()] for row in rows])


def _show_values(found: dict[str, str], json: bool) -> None:
    if json:
        print_json(found)
        return
    for name, value in sorted(found.items()):
        say(f"{name}={value}")


def _text(cell: object) -> object:
    if isinstance(cell, dict):
        return ", ".join(f"{key}={value}" for key, value in cell.items())
    return cell
