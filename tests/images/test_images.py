"""The four images: built without a registry, small, locked down, and each starts its command."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from tools.build_images import version

from tests.images.image_lab import (
    HOME,
    SECONDS,
    USER,
    Container,
    Image,
    ImageStore,
    built_images,
    why_not,
)
from tests.support.analytics.cases import CASES
from tests.support.common.polling import wait_until
from tests.support.net.ports import free_port_block

STARTS = {
    "broker": ["broker", "--help"],
    "operator": ["operator", "--help"],
    "chaos": ["experiment", "--help"],
    "analytics": ["report", "--help"],
}
ONLY_IN = {
    "uvloop": {"broker", "chaos", "analytics"},
    "kopf": {"operator"},
    "kubernetes": {"operator", "chaos", "analytics"},
    "pyarrow": {"chaos", "analytics"},
    "chaoslib": {"chaos"},
    "pyspark": {"analytics"},
    "plotly": {"chaos", "analytics"},
}
"""A library → the images that have it."""
SPARK_MAIN = "local:///opt/failback/bin/spark_main.py"
EXECUTOR = {
    "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@127.0.0.1:1",
    "SPARK_EXECUTOR_ID": "1",
    "SPARK_EXECUTOR_CORES": "1",
    "SPARK_EXECUTOR_MEMORY": "256m",
    "SPARK_APPLICATION_ID": "spark-1",
    "SPARK_EXECUTOR_POD_IP": "127.0.0.1",
    "SPARK_EXECUTOR_POD_NAME": "trial-7-exec-1",
    "SPARK_RESOURCE_PROFILE_ID": "0",
}
"""What Spark says in the pod of an executor; nobody answers at the driver's address."""
LARGEST_MIB = {"broker": 170, "operator": 200, "chaos": 360, "analytics": 950}


@pytest.fixture(scope="module")
def built() -> Iterator[tuple[ImageStore, dict[str, Image]]]:
    reason = why_not()
    if reason is not None:
        pytest.skip(reason)
    with built_images() as found:
        yield found


@pytest.fixture(scope="module")
def images(built: tuple[ImageStore, dict[str, Image]]) -> dict[str, Image]:
    return built[1]


@pytest.fixture
def containers(images: dict[str, Image], tmp_path: Path) -> Iterator[Containers]:
    made = Containers(images, tmp_path)
    yield made
    made.stop()


class Containers:
    """The containers of one test, stopped at its end."""

    def __init__(self, images: dict[str, Image], folder: Path) -> None:
        self._images = images
        self._folder = folder
        self._made: list[Container] = []

    def make(self, target: str, name: str, **environment: str) -> Container:
        made = Container(self._images[target], self._folder / name, environment)
        self._made.append(made)
        return made

    def stop(self) -> None:
        for each in self._made:
            each.stop()


@pytest.mark.parametrize("target", sorted(STARTS))
def test_an_image_starts_its_command(target: str, containers: Containers) -> None:
    container = containers.make(target, target)
    code, output = container.run(*STARTS[target])
    assert (code, "Usage: " in output or "usage: " in output) == (0, True), output
    code, output = container.run("--version")
    assert (code, output) == (0, "failback 0.2.0\n")


@pytest.mark.parametrize("target", ["chaos", "analytics"])
def test_the_own_command_of_a_job_image_explains_itself(
    target: str, containers: Containers
) -> None:
    code, output = containers.make(target, target).run()
    assert (code, "Usage: " in output) == (0, True), output


@pytest.mark.parametrize("target", sorted(STARTS))
def test_an_image_is_locked_down(target: str, images: dict[str, Image]) -> None:
    image = images[target]
    assert image.config["User"] == f"{USER}:{USER}"
    assert image.config["Entrypoint"] == ["failback-init", "--", "failback"]
    labels = image.config["Labels"]
    assert labels["org.opencontainers.image.title"] == f"failback/{target}"
    assert labels["org.opencontainers.image.licenses"] == "Apache-2.0"
    assert len(labels["org.opencontainers.image.revision"]) == 40
    own = [image.root / "opt" / "failback", *(image.root / "opt" / "failback").rglob("*")]
    foreign = [path for path in own if path.lstat().st_uid == USER]
    assert foreign == [], "the user must not be able to change the program"
    assert (image.root / HOME.lstrip("/") / "store").lstat().st_uid == USER
    for path in own:
        assert not path.lstat().st_mode & (stat.S_ISUID | stat.S_ISGID)
    assert not list((image.root / "opt" / "failback" / "bin").glob("pip*"))


@pytest.mark.parametrize("target", ["broker", "operator"])
def test_a_server_image_has_a_health_check(target: str, images: dict[str, Image]) -> None:
    check = images[target].config["Healthcheck"]["Test"]
    assert check[:2] == ["CMD", "python3"]


@pytest.mark.parametrize("target", ["chaos", "analytics"])
def test_a_job_image_has_none(target: str, images: dict[str, Image]) -> None:
    assert images[target].config["Healthcheck"]["Test"] == ["NONE"]


@pytest.mark.parametrize("library", sorted(ONLY_IN))
def test_an_image_has_only_the_libraries_that_it_runs(
    library: str, images: dict[str, Image]
) -> None:
    pattern = f"opt/failback/lib/python3*/site-packages/{library}"
    holders = {target for target, image in images.items() if list(image.root.glob(pattern))}
    assert holders == ONLY_IN[library]


@pytest.mark.parametrize("target", sorted(STARTS))
def test_an_image_lists_its_packages_and_the_list_lies_beside_it(
    target: str, built: tuple[ImageStore, dict[str, Image]]
) -> None:
    store, images = built
    text = (images[target].root / "opt" / "failback" / "sbom.cdx.json").read_text()
    assert (store.sboms / f"failback-{target}-{version()}.cdx.json").read_text() == text
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    listed = {(each["name"], each["version"]) for each in json.loads(text)["components"]}
    held = images[target].root.glob("opt/failback/lib/python3*/site-packages/*.dist-info/METADATA")
    found = {tuple(re.findall(r"(?m)^(?:Name|Version): (.+)$", file.read_text())) for file in held}
    assert listed == found


def test_the_broker_has_its_kernels_for_its_python(containers: Containers) -> None:
    show = "from failback.broker.native import kernels; print(kernels.crc32(b'123456789'))"
    code, output = containers.make("broker", "broker").run("-c", show, command=("python3",))
    assert (code, output) == (0, f"{0xCBF43926}\n")


def test_sizes(built: tuple[ImageStore, dict[str, Image]]) -> None:
    store, images = built
    for target, image in images.items():
        mib = store.size_bytes(image.name) / 2**20
        print(f"\n{image.name}: {mib:.0f} MiB", end="")
        assert mib < LARGEST_MIB[target]


def test_byte_code_is_there_so_that_a_read_only_root_starts_quickly(
    images: dict[str, Image],
) -> None:
    for image in images.values():
        (module,) = image.root.glob("opt/failback/lib/python3*/site-packages/failback/init")
        names = {path.name.partition(".")[0] for path in (module / "__pycache__").glob("*.pyc")}
        assert names == {path.stem for path in module.glob("*.py")}


@pytest.mark.soak
def test_two_builds_of_one_commit_are_equal(built: tuple[ImageStore, dict[str, Image]]) -> None:
    store, images = built
    store.build("broker", repository="failback-again", fresh=True)
    again = images["broker"].name.replace("failback/", "failback-again/")
    names = (images["broker"].name, again)
    layers = [store.inspect(name)["OCIv1"]["rootfs"] for name in names]
    if layers[0] != layers[1]:
        first, second = (store.listing(name) for name in names)
        differ = sorted(first ^ second)
        raise AssertionError(f"{len(differ)} differ, such as {differ[:20]}")


def test_the_root_is_read_only_and_pid_1_the_init(containers: Containers) -> None:
    container = containers.make("broker", "broker")
    script = f"cat /proc/1/comm; touch /opt/x /etc/x {HOME}/x {HOME}/scratch/x; id -u; id -g"
    script += "; grep CapEff /proc/self/status"
    code, output = container.run("sh", "-c", script, command=["failback-init", "--"])
    lines = output.splitlines()
    assert code == 0
    assert lines[0] == "failback-init"
    assert sum("Read-only file system" in line for line in lines) == 3
    assert lines[-3:] == [str(USER), str(USER), "CapEff:\t0000000000000000"]
    assert (container.folder / "scratch" / "x").stat().st_uid == USER


def answers(url: str) -> int:
    """Return the HTTP status, 0 without an answer."""
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def test_name_server_and_broker_become_ready_and_a_kill_is_on_record(
    containers: Containers,
) -> None:
    first = free_port_block(8)
    address, http, remoting = f"127.0.0.1:{first}", first + 1, first + 4
    server = containers.make("broker", "namesrv")
    write(server, "namesrv.conf", listenPort=first, bindAddress="127.0.0.1", failbackHttpPort=http)
    server.start("namesrv", "-c", f"{HOME}/conf/namesrv.conf")
    wait_until(lambda: answers(f"http://127.0.0.1:{http}/readyz") == 200, "the name server", 60)

    broker = containers.make("broker", "broker", POD_NAME="demo-0-0-0", POD_IP="127.0.0.1")
    write(
        broker,
        "desired.conf",
        brokerName="demo-0",
        brokerId=0,
        brokerClusterName="demo",
        brokerIP1="${POD_IP}",
        listenPort=remoting,
        namesrvAddr=address,
        failbackHttpPort=first + 6,
        storePathRootDir=f"{HOME}/store",
        storePathCommitLog=f"{HOME}/store/commitlog",
        mappedFileSizeCommitLog=16 * 1024 * 1024,
    )
    conf = f"{HOME}/conf"
    code, output = broker.run(
        "tools", "install-conf", "--from", f"{conf}/desired.conf", "--to", f"{conf}/broker.conf"
    )
    assert code == 0, output
    broker.start()  # the image's own command
    ready = f"http://127.0.0.1:{first + 6}/readyz"
    log = broker.folder / "output.log"
    wait_until(lambda: answers(ready) == 200, f"the broker; see {log}", 120)
    health = list(broker.image.config["Healthcheck"]["Test"][1:])
    port = f"FAILBACK_HTTP_PORT={first + 6}"
    assert broker.exec("env", port, *health).returncode == 0

    child = json.loads(broker.exec("failback-init", "status", "--json").stdout)["child"]
    assert (child["init"]["pid"], child["command"][:2]) == (1, ["failback", "broker"])
    assert broker.exec("failback-init", "kill", "KILL", "--by", "test").returncode == 0
    assert broker.ended() == 137
    deaths = (broker.folder / "run" / "deaths.jsonl").read_text().splitlines()
    death = json.loads(deaths[-1])
    assert (death["signal"], death["pod"]) == (9, "demo-0-0-0")
    assert death["sent_by"]["by"] == "test"
    assert (broker.folder / "store" / "abort").exists(), "no shutdown code ran"
    assert answers(ready) == 0


@pytest.mark.soak
def test_job_images_make_the_same_report_in_process_and_with_spark(
    containers: Containers,
) -> None:
    totals = []
    for target, engine in (("chaos", "local"), ("analytics", "local"), ("analytics", "spark")):
        container = containers.make(target, f"{target}-{engine}", TMPDIR=f"{HOME}/scratch")
        run = container.folder / "scratch" / "run"
        builder, expected = CASES["c2"]()
        builder.write(run)
        for path in (run, *run.rglob("*")):
            os.chown(path, USER, USER)
        code, output = container.run(
            *("report", "--engine", engine, f"{HOME}/scratch/run", "--out", f"{HOME}/scratch/out"),
            seconds=5 * SECONDS,
        )
        report = container.folder / "scratch" / "out"
        assert (report / "report.html").stat().st_size > 500_000, output
        found = json.loads((report / "report.json").read_text())
        assert found["totals"]["dup"] == expected.dup > 0
        assert code in (0, 3), output  # what a case leaves out makes it inconclusive
        totals.append(found["totals"])
    assert totals[0] == totals[1] == totals[2]


def test_the_analytics_image_is_what_spark_starts_in_its_pods(containers: Containers) -> None:
    """Spark gives its pods one word; the driver has the main file of the page, an executor Java."""
    scratch = f"-Djava.io.tmpdir={HOME}/scratch"  # the root is read-only here
    told = {"SPARK_DRIVER_BIND_ADDRESS": "127.0.0.1", "SPARK_SUBMIT_OPTS": scratch}
    driver = containers.make("analytics", "driver", **told)
    code, output = driver.run("driver", SPARK_MAIN, "--version", seconds=2 * SECONDS)
    assert (code, output.splitlines()[-1]) == (0, "failback 0.2.0"), output
    executor = containers.make("analytics", "executor", **EXECUTOR, SPARK_JAVA_OPT_0=scratch)
    code, output = executor.run("executor", seconds=2 * SECONDS)
    assert code == 1
    assert "Failed to connect to /127.0.0.1:1" in output, output


def write(container: Container, name: str, **properties: object) -> None:
    path = container.folder / "conf" / name
    path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    os.chown(path, USER, USER)


@pytest.mark.sample
def test_an_unknown_target_is_refused() -> None:
    done = subprocess.run(
        ["python3", "tools/build_images.py", "brokers"],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 2
    assert "unknown target brokers; there are broker, operator, chaos, analytics" in done.stderr
