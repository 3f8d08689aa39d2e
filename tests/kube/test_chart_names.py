"""Names, labels and selectors of the chart: two releases in one namespace, a user's own."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML
from tools import install_operator

from failback.operator.settings import read_settings
from tests.kube.test_chart_rendered import deployment, one, variables_of
from tests.support.operator.chart import (
    CHART,
    MODES,
    RELEASE_NAMESPACE,
    Object,
    helm,
    objects,
    render,
    settings,
)

RELEASES = ("r1", "r2")
EVERYTHING = (
    *MODES["everything"],
    *MODES["collector"],
    "grafana.dashboards.enabled=true",
    "dashboard.tokens=00ff read oncall",
    "dashboard.ingress.enabled=true",
    "exporters[0].name=orders",
    "exporters[0].nameServers={ns:9876}",
    "leaderElection.enabled=true",
    "chaos.enabled=true",
    "crds.install=false",
)
SHARED = {("NetworkPolicy", part) for part in ("brokers", "nameservers", "jobs")}
"""What these select is the watched namespace's, not the release's."""


def of_release(folder: Path, release: str, *words: str) -> list[Object]:
    done = helm(folder, "template", release, str(CHART), "-n", RELEASE_NAMESPACE, *settings(words))
    assert done.returncode == 0, done.stderr
    return objects(done.stdout)


def identities(found: list[Object]) -> set[tuple[str, str]]:
    return {(each["kind"], each["metadata"]["name"]) for each in found}


def pods_of(found: list[Object]) -> Iterator[dict[str, str]]:
    """The labels of every pod that a release makes."""
    for each in found:
        if each["kind"] == "Pod":
            yield each["metadata"]["labels"]
        elif each["kind"] in ("Deployment", "Job"):
            yield each["spec"]["template"]["metadata"]["labels"]


def selectors_of(found: list[Object], release: str) -> Iterator[tuple[str, dict[str, str]]]:
    """What the objects of a release select among its own pods, with a name to show."""
    for each in found:
        kind, name = each["kind"], each["metadata"]["name"]
        spec: dict[str, Any] = each.get("spec") or {}
        selector = spec.get("podSelector") or spec.get("selector")
        # The PodMonitor of that name scrapes brokers, which are the watched namespaces' too.
        shared = (kind, name.removeprefix(f"{release}-failback-")) in SHARED
        if shared or name == f"{release}-failback":
            continue
        if selector:
            yield f"{kind} {name}", selector.get("matchLabels", selector)


def test_two_releases_in_one_namespace_share_no_name_and_no_pod(tmp_path: Path) -> None:
    first, second = (of_release(tmp_path, release, *EVERYTHING) for release in RELEASES)
    assert len(first) == len(second) > 50
    assert identities(first) & identities(second) == set()
    pods = list(pods_of(second))
    assert len(pods) >= 7
    for name, selector in selectors_of(first, "r1"):
        assert [pod for pod in pods if selector.items() <= pod.items()] == [], name
        assert [pod for pod in pods_of(first) if selector.items() <= pod.items()], name


def test_two_releases_lead_by_two_leases(tmp_path: Path) -> None:
    leases = set()
    for release in RELEASES:
        words = ("leaderElection.enabled=true", "watchNamespaces={shop}", "crds.install=false")
        found = of_release(tmp_path, release, *words)
        name = read_settings(variables_of(found, f"{release}-failback-operator")).lease_name
        rules = one(found, "Role", f"{release}-failback-operator-leader")["rules"]
        assert [each["resourceNames"] for each in rules if "resourceNames" in each] == [[name]]
        leases.add(name)
    assert len(leases) == 2


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), "failback-operator"),
        (("fullnameOverride=mq",), "mq-operator"),
        (("nameOverride=mq",), "failback-mq-operator"),
    ],
)
def test_names_can_be_chosen(words: tuple[str, ...], expected: str, tmp_path: Path) -> None:
    found = objects(render(tmp_path, *words))
    pod = deployment(found, expected)
    assert pod["serviceAccountName"] == expected
    variables = variables_of(found, expected)
    assert variables["FAILBACK_SERVICE_ACCOUNT"] == variables["FAILBACK_LEASE_NAME"] == expected
    (stop,) = (
        word
        for each in found
        if each["kind"] == "Job"
        for word in each["spec"]["template"]["spec"]["containers"][0]["args"]
        if word.startswith("--stop=")
    )
    assert stop == f"--stop=failback/{expected}"


def test_names_stay_short_enough_for_services(tmp_path: Path) -> None:
    words = ("exporters[0].name=a", "exporters[0].nameServers={ns:9876}", "crds.install=false")
    found = of_release(tmp_path, "r" * 53, *words)
    names = [each["metadata"]["name"] for each in found if each["kind"] == "Service"]
    assert max(map(len, names)) <= 63
    assert ("Service", f"{'r' * 31}-failback-operator") in identities(found)


def test_labels_variables_and_spreading_of_a_user_reach_the_operator(tmp_path: Path) -> None:
    words = (
        *(
            "commonLabels.team=messaging",
            "extraEnv[0].name=HTTPS_PROXY",
            "extraEnv[0].value=p:3128",
        ),
        *("topologySpreadConstraints[0].maxSkew=1", "collector.enabled=true"),
        "topologySpreadConstraints[0].topologyKey=zone",
        "topologySpreadConstraints[0].whenUnsatisfiable=ScheduleAnyway",
        *("collector.extraArgs={--keep-days=7}", "dashboard.extraArgs={--live}"),
        "dashboard.enabled=true",
    )
    found = objects(render(tmp_path, *words, crds=True))
    for each in found:
        labels = each["metadata"]["labels"]
        assert (labels["team"], labels["app.kubernetes.io/part-of"]) == ("messaging", "failback")
    template = one(found, "Deployment", "failback-operator")["spec"]["template"]
    assert template["metadata"]["labels"]["team"] == "messaging"
    assert [each["topologyKey"] for each in template["spec"]["topologySpreadConstraints"]] == [
        "zone"
    ]
    assert variables_of(found, "failback-operator")["HTTPS_PROXY"] == "p:3128"
    for part, word in (("collector", "--keep-days=7"), ("dashboard", "--live")):
        assert deployment(found, f"failback-{part}")["containers"][0]["args"][-1] == word


def test_two_operators_need_a_leader(tmp_path: Path) -> None:
    values = settings(("replicas=2", "leaderElection.enabled=false"))
    done = helm(tmp_path, "template", "failback", str(CHART), *values)
    assert done.returncode != 0
    assert "replicas: 2 operators need leaderElection.enabled=true" in done.stderr
    render(tmp_path, "replicas=2")


def test_the_notes_need_no_file(tmp_path: Path) -> None:
    done = helm(tmp_path, "install", "r1", str(CHART), "-n", "mq", "--dry-run=client")
    assert done.returncode == 0, done.stderr
    notes = done.stdout.partition("\nNOTES:\n")[2]
    assert "helm test r1 --namespace mq" in notes
    assert "examples/" not in notes
    pasted = notes.partition("<<'EOF'\n")[2].partition("\nEOF\n")[0]
    assert objects(pasted) == objects((CHART / "files/first-cluster.yaml").read_text())


def test_the_chart_shows_its_icon_and_its_kinds() -> None:
    chart = YAML(typ="safe").load((CHART / "Chart.yaml").read_text())
    head, _, data = chart["icon"].partition(",")
    assert head == "data:image/svg+xml;base64"
    assert base64.b64decode(data) == (CHART / "icon.svg").read_bytes().strip()
    listed = YAML(typ="safe").load(chart["annotations"]["artifacthub.io/crds"])
    defined = [objects(path.read_text())[0] for path in sorted((CHART / "crds-src").glob("*.yaml"))]
    assert sorted((each["name"], each["kind"]) for each in listed) == sorted(
        (each["metadata"]["name"], each["spec"]["names"]["kind"]) for each in defined
    )


@pytest.mark.parametrize(
    ("context", "registry", "brings"),
    [
        ("kind-lab", "", [["kind", "load", "docker-image"]]),
        ("minikube", "", [["minikube", "image", "load"]] * 4),
        ("prod", "reg.example.com/team", [["podman", "tag"], ["podman", "push"]] * 4),
    ],
)
def test_make_install_brings_the_images_that_the_chart_names(
    context: str, registry: str, brings: list[list[str]], tmp_path: Path
) -> None:
    *carried, last = install_operator.steps("podman", context, registry, "shop")
    assert [each[: len(words)] for each, words in zip(carried, brings, strict=True)] == brings
    given = [word for at, word in enumerate(last) if last[at - 1] == "--set"]
    found = objects(render(tmp_path, *given))
    named = {
        value for key, value in variables_of(found, "failback-operator").items() if "IMAGE_" in key
    }
    operator = deployment(found, "failback-operator")["containers"][0]["image"]
    targets = {f"failback/{target}" for target in ("broker", "chaos", "analytics", "operator")}
    wanted = {f"{registry}/{target}" if registry else target for target in targets}
    assert wanted <= {each.partition(":")[0] for each in (*named, operator)}
    if registry:
        assert {each[2].partition(":")[0] for each in carried if each[1] == "push"} == wanted


def test_make_install_says_what_another_cluster_needs() -> None:
    with pytest.raises(install_operator.InstallError, match="prod is no cluster of kind or mini"):
        list(install_operator.steps("docker", "prod", "", "shop"))
