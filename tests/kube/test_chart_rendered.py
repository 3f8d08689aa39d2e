"""What the chart renders, without a server: golden files, rights, pod security, definitions."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from failback.client.remoting.guarded.cluster import Given, find_cluster
from tests.support.net.certificates import Authority
from tests.support.operator.chart import CHART, MODES, Object, helm, objects, render, settings
from tests.support.processes.child_process import ROOT

GOLDEN = ROOT / "tests" / "data" / "charts"
GOLDEN_MODES = ("bare", "default", "everything")
"""The other modes are asserted by what they switch."""
ALL = ["get", "list", "watch", "create", "patch", "delete"]
KINDS = [
    "nameservers",
    "brokerclusters",
    "topics",
    "subscriptiongroups",
    "roleswitches",
    "offsetsnapshots",
    "chaosexperiments",
    "reconsumptionreports",
]
Rights = dict[tuple[str, str], set[str]]

OPERATOR: Rights = {
    **{("failback.dev", kind): {"get", "list", "watch", "patch"} for kind in KINDS},
    **{("failback.dev", f"{kind}/status"): {"patch"} for kind in KINDS},
    **{("", kind): set(ALL) for kind in ("configmaps", "persistentvolumeclaims")},
    ("", "services"): set(ALL) - {"delete"},
    ("apps", "statefulsets"): set(ALL),
    ("policy", "poddisruptionbudgets"): set(ALL),
    ("batch", "jobs"): set(ALL),
    ("", "pods"): {"list", "watch", "patch", "delete"},
    ("", "pods/eviction"): {"create"},
    ("", "events"): {"create", "list"},
    ("coordination.k8s.io", "leases"): {"get", "create", "update", "delete"},
}
OPERATOR["failback.dev", "roleswitches"] = {"get", "list", "watch", "create", "patch", "delete"}
READS_NODES: Rights = {("", "nodes"): {"get"}}
for _kind in ("nameservers", "offsetsnapshots", "reconsumptionreports"):
    OPERATOR["failback.dev", _kind] = {"get", "list", "watch"}
CHAOS: Rights = {
    ("", "pods"): {"get", "list"},
    ("", "pods/exec"): {"get", "create"},
    ("failback.dev", "brokerclusters"): {"get", "patch"},
    ("failback.dev", "roleswitches"): {"get", "create"},
    ("coordination.k8s.io", "leases"): {"get", "create", "update"},
}
SPARK: Rights = {
    ("", "pods"): {"get", "list", "watch", "create", "delete", "deletecollection"},
    ("", "configmaps"): {"create", "deletecollection"},
    ("", "persistentvolumeclaims"): {"list", "deletecollection"},
    ("", "services"): {"deletecollection"},
}
LEASE = "failback-operator"
LOOKS: Rights = {("failback.dev", kind): {"list"} for kind in ("nameservers", "brokerclusters")}
NAMESPACES_ALL: Rights = {
    ("", "namespaces"): {"get", "list", "watch"},
    ("apiextensions.k8s.io", "customresourcedefinitions"): {"list", "watch"},
}


def one(found: list[Object], kind: str, name: str, namespace: str | None = "failback") -> Object:
    """Return the object of this name; ``None`` is the namespace of what has none."""
    (item,) = [
        each
        for each in found
        if (each["kind"], each["metadata"]["name"]) == (kind, name)
        and each["metadata"].get("namespace") == namespace
    ]
    return item


def deployment(found: list[Object], name: str) -> Object:
    """Return the pod of one Deployment."""
    pod: Object = one(found, "Deployment", name)["spec"]["template"]["spec"]
    return pod


def variables_of(found: list[Object], name: str) -> dict[str, str]:
    """Return the variables of the first container of one Deployment."""
    container = deployment(found, name)["containers"][0]
    return {each["name"]: each.get("value", "") for each in container["env"]}


def subjects_of(binding: Object) -> list[tuple[str, str]]:
    """Return name and namespace of each account that a binding serves."""
    return [(each["name"], each["namespace"]) for each in binding["subjects"]]


def schemes_of(container: Object) -> set[str]:
    """Return the schemes of a container's three probes."""
    probes = ("startupProbe", "readinessProbe", "livenessProbe")
    return {container[probe]["httpGet"].get("scheme", "HTTP") for probe in probes}


def rights(found: list[Object], kind: str, name: str, namespace: str | None = None) -> Rights:
    """Return group and resource → verbs of one role; a rule for named objects is left out."""
    role = one(found, kind, name, namespace)
    collected: Rights = {}
    for rule in role["rules"]:
        if "resourceNames" in rule:
            if rule["resources"] == ["leases"]:
                assert (rule["resourceNames"], rule["verbs"]) == ([LEASE], ["get", "update"])
                continue
            assert rule["resources"] == ["namespaces"]
            assert (rule["resourceNames"], rule["verbs"]) == ([namespace], ["get"])
            continue
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                collected.setdefault((group, resource), set()).update(rule["verbs"])
    return collected


def test_the_archive_of_make_dist_renders_as_the_chart_does(tmp_path: Path) -> None:
    from tools.dist import make_chart

    archive = make_chart(tmp_path)
    packed, folder = (
        helm(tmp_path, "template", "failback", str(chart)).stdout for chart in (archive, CHART)
    )
    assert packed == folder
    assert "kind: Deployment" in packed


@pytest.mark.parametrize("mode", sorted(MODES))
def test_lint_finds_nothing(mode: str, tmp_path: Path) -> None:
    done = helm(tmp_path, "lint", "--strict", str(CHART), *settings(MODES[mode]))
    assert done.returncode == 0, done.stdout
    assert "0 chart(s) failed" in done.stdout


@pytest.mark.sample
@pytest.mark.parametrize("mode", GOLDEN_MODES)
def test_a_mode_renders_its_golden_file(mode: str, tmp_path: Path) -> None:
    """FAILBACK_WRITE_GOLDEN=1 writes the files again; read the difference before committing."""
    text = render(tmp_path, *MODES[mode])
    golden = GOLDEN / f"{mode}.yaml"
    if os.environ.get("FAILBACK_WRITE_GOLDEN"):
        golden.write_text(text)
    assert text == golden.read_text()


@pytest.mark.parametrize("mode", ["default", "two-namespaces"])
def test_a_namespaced_operator_has_these_rights_and_no_others(mode: str, tmp_path: Path) -> None:
    found = objects(render(tmp_path, *MODES[mode]))
    for namespace in ["failback"] if mode == "default" else ["shop", "stock"]:
        assert rights(found, "Role", "failback-operator", namespace) == OPERATOR
        assert rights(found, "Role", "failback-spark", namespace) == SPARK
        if mode != "default":
            assert rights(found, "Role", "failback-chaos", namespace) == CHAOS
    if mode == "default":
        assert "failback-chaos" not in {each["metadata"]["name"] for each in found}
        everywhere = {
            each["metadata"]["name"] for each in found if each["kind"].startswith("ClusterRole")
        }
        assert everywhere == {f"failback-{part}-failback" for part in ("view", "edit", "admin")}


def test_an_operator_of_the_cluster_has_the_same_rights_everywhere(tmp_path: Path) -> None:
    found = objects(render(tmp_path, *MODES["cluster"]))
    name = "failback-operator-failback"
    assert rights(found, "ClusterRole", name) == {**OPERATOR, **NAMESPACES_ALL}
    roles = [each["metadata"]["name"] for each in found if each["kind"] == "Role"]
    assert "failback-operator" not in roles
    binding = one(found, "ClusterRoleBinding", name, None)
    assert subjects_of(binding) == [("failback-operator", "failback")]
    variables = variables_of(found, "failback-operator")
    assert variables["FAILBACK_WATCH_CRDS"] == "true"
    assert variables["FAILBACK_WATCH_NAMESPACES"] == ""
    uninstall = "failback-uninstall-failback"
    assert rights(found, "ClusterRole", uninstall, None) == {
        ("failback.dev", kind): {"list", "patch"} for kind in KINDS if kind != "offsetsnapshots"
    }
    binding = one(found, "ClusterRoleBinding", uninstall, None)
    assert subjects_of(binding) == [("failback-uninstall", "failback")]
    words = uninstall_words(found)
    assert not [word for word in words if word.startswith("--namespace")]


def test_an_operator_of_the_cluster_makes_jobs_only_where_something_needs_them(
    tmp_path: Path,
) -> None:
    found = objects(render(tmp_path, *MODES["cluster"], "spark.enabled=false"))
    name = "failback-operator-failback"
    looks = {**OPERATOR, ("batch", "jobs"): {"get", "list", "watch"}}
    assert rights(found, "ClusterRole", name) == {**looks, **NAMESPACES_ALL}


def test_people_get_rights_over_the_kinds_with_the_clusters_own_roles(tmp_path: Path) -> None:
    found = objects(render(tmp_path))
    roles = {
        part: one(found, "ClusterRole", f"failback-{part}-failback", None)
        for part in ("view", "edit", "admin")
    }
    joined = {
        part: {
            label.rpartition("aggregate-to-")[2]
            for label in role["metadata"]["labels"]
            if "aggregate-to-" in label
        }
        for part, role in roles.items()
    }
    assert joined == {
        "view": {"view", "edit", "admin"},
        "edit": {"edit", "admin"},
        "admin": {"admin"},
    }
    (looks,), (writes,), (injects,) = (role["rules"] for role in roles.values())
    assert (set(looks["resources"]), looks["verbs"]) == (set(KINDS), ["get", "list", "watch"])
    assert set(writes["resources"]) == set(KINDS) - {"chaosexperiments"}
    assert injects["resources"] == ["chaosexperiments"]
    assert not any("/" in each for role in roles.values() for each in role["rules"][0]["resources"])


def test_each_port_of_each_pod_has_its_policy(tmp_path: Path) -> None:
    found = objects(render(tmp_path, *MODES["everything"]))
    policies = {
        each["metadata"]["name"]: each["spec"] for each in found if each["kind"] == "NetworkPolicy"
    }
    assert set(policies) == {
        f"failback-{part}" for part in ("brokers", "nameservers", "jobs", "operator", "dashboard")
    }
    rules = {
        port["port"]: rule.get("from")
        for rule in policies["failback-brokers"]["ingress"]
        for port in rule["ports"]
    }
    broker = {"app.kubernetes.io/name": "failback", "app.kubernetes.io/component": "broker"}
    assert rules["ha"] == [{"podSelector": {"matchLabels": broker}}]
    shop = {"namespaceSelector": {"matchLabels": {"team": "shop"}}}
    assert shop in rules["remoting"]
    assert rules["ha"][0] in rules["fast"]
    assert shop not in rules["http"]
    open_to_all = objects(render(tmp_path))
    (spec,) = [
        each["spec"] for each in open_to_all if each["metadata"]["name"] == "failback-brokers"
    ]
    assert [rule.get("from") is None for rule in spec["ingress"]] == [True, False, True]


def uninstall_words(found: list[Object]) -> list[str]:
    """Return the arguments of the Job that frees resources of their finalizers."""
    (job,) = [
        each for each in found
        if each["kind"] == "Job" and each["metadata"]["name"].startswith("failback-uninstall")
    ]  # fmt: skip
    words: list[str] = job["spec"]["template"]["spec"]["containers"][0]["args"]
    return words


def test_an_operator_of_two_namespaces_has_what_it_needs_in_each(tmp_path: Path) -> None:
    found = objects(render(tmp_path, *MODES["two-namespaces"]))
    assert one(found, "Deployment", "failback-operator")["spec"]["replicas"] == 2
    variables = variables_of(found, "failback-operator")
    assert variables["FAILBACK_LEADER_ELECTION"] == "true"
    assert variables["FAILBACK_WATCH_CRDS"] == "true"
    assert variables["FAILBACK_WATCH_NAMESPACES"] == "shop,stock"
    leases = {("coordination.k8s.io", "leases"): {"create"}}
    assert rights(found, "Role", "failback-operator-leader", "failback") == leases
    leader = one(found, "RoleBinding", "failback-operator-leader")
    assert subjects_of(leader) == [("failback-operator", "failback")]
    name = "failback-operator-failback"
    watched = {("apiextensions.k8s.io", "customresourcedefinitions"): {"list", "watch"}}
    assert rights(found, "ClusterRole", name) == {**watched, **READS_NODES}
    only_nodes = objects(render(tmp_path, "rbac.readNodes=true"))
    assert rights(only_nodes, "ClusterRole", name) == READS_NODES
    everywhere = objects(render(tmp_path, "rbac.scope=cluster", "rbac.readNodes=true"))
    assert READS_NODES.items() <= rights(everywhere, "ClusterRole", name).items()
    binding = one(found, "ClusterRoleBinding", name, None)
    assert subjects_of(binding) == [("failback-operator", "failback")]
    for namespace in ("shop", "stock"):
        binding = one(found, "RoleBinding", "failback-operator", namespace)
        assert subjects_of(binding) == [("failback-operator", "failback")]
        for account in ("failback-chaos", "failback-spark"):
            one(found, "ServiceAccount", account, namespace)
            binding = one(found, "RoleBinding", account, namespace)
            assert subjects_of(binding) == [(account, namespace)]
        finalizers = "failback-uninstall-finalizers"
        one(found, "Role", finalizers, namespace)
        binding = one(found, "RoleBinding", finalizers, namespace)
        assert subjects_of(binding) == [("failback-uninstall", "failback")]
    stop, *namespaces = uninstall_words(found)[-3:]
    assert stop == "--stop=failback/failback-operator"
    assert namespaces == ["--namespace=shop", "--namespace=stock"]


def test_optional_rights_come_with_their_feature(tmp_path: Path) -> None:
    found = objects(render(tmp_path, *MODES["everything"]))
    more = {
        ("monitoring.coreos.com", "podmonitors"): {"get", "create", "patch", "delete"},
        ("sparkoperator.k8s.io", "sparkapplications"): {"get", "create", "patch"},
        ("", "services"): set(ALL),  # external Services of members that leave
    }
    assert rights(found, "Role", "failback-operator", "failback") == {**OPERATOR, **more}
    extra = {("chaos-mesh.org", "networkchaos"): {"get", "create", "delete"}}
    assert rights(found, "Role", "failback-chaos", "failback") == {**CHAOS, **extra}
    assert rights(found, "Role", "failback-dashboard", "failback") == LOOKS


@pytest.mark.parametrize("mode", sorted(MODES))
def test_no_role_has_a_wildcard_or_reads_secrets(mode: str, tmp_path: Path) -> None:
    for each in objects(render(tmp_path, *MODES[mode])):
        for rule in each.get("rules", []) if each["kind"].endswith("Role") else []:
            assert "*" not in [*rule["apiGroups"], *rule["resources"], *rule["verbs"]]
            assert "secrets" not in rule["resources"]
            if "pods/exec" in rule["resources"]:
                assert each["metadata"]["name"] == "failback-chaos"


@pytest.mark.parametrize("mode", sorted(MODES))
def test_every_pod_is_restricted(mode: str, tmp_path: Path) -> None:
    for each in objects(render(tmp_path, *MODES[mode])):
        if each["kind"] not in ("Deployment", "Job"):
            continue
        pod = each["spec"]["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in pod["containers"]:
            context = container["securityContext"]
            assert context["capabilities"] == {"drop": ["ALL"]}
            assert context["allowPrivilegeEscalation"] is False
            assert context["readOnlyRootFilesystem"] is True
            assert container["command"] == ["failback-init", "--", "failback"]


@pytest.mark.parametrize("keep", [True, False])
def test_definitions_are_the_generated_ones_with_labels(keep: bool, tmp_path: Path) -> None:
    shown = objects(render(tmp_path, f"crds.keep={str(keep).lower()}", crds=True))
    found = {
        each["metadata"]["name"]: each
        for each in shown
        if each["kind"] == "CustomResourceDefinition"
    }
    assert sorted(name.partition(".")[0] for name in found) == sorted(KINDS)
    for path in (CHART / "crds-src").glob("*.yaml"):
        source: Any = YAML(typ="safe").load(path.read_text())
        definition = found[source["metadata"]["name"]]
        assert definition["spec"] == source["spec"]
        assert definition["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "Helm"
        annotations = definition["metadata"].get("annotations", {})
        assert (annotations.get("helm.sh/resource-policy") == "keep") is keep


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("nosuch=1", "additional properties 'nosuch' not allowed"),
        ("rbac.nosuch=1", "at '/rbac': additional properties 'nosuch' not allowed"),
        ("rbac.scope=all", "at '/rbac/scope': value must be one of 'namespace', 'cluster'"),
        (
            "replicas=2,leaderElection.enabled=false",
            "replicas: 2 operators need leaderElection.enabled=true",
        ),
        ("logLevel=LOUD", "at '/logLevel': value must be one of"),
        ("watchNamespaces={Shop}", "at '/watchNamespaces/0': 'Shop' does not match pattern"),
    ],
)
def test_wrong_values_are_refused_by_name(word: str, message: str, tmp_path: Path) -> None:
    done = helm(tmp_path, "template", "failback", str(CHART), "--set", word)
    assert done.returncode != 0
    assert message in done.stderr


def test_an_image_without_tag_gets_the_release(tmp_path: Path) -> None:
    found = objects(render(tmp_path, *MODES["everything"]))
    (container,) = deployment(found, "failback-operator")["containers"]
    variables = variables_of(found, "failback-operator")
    assert container["image"] == "failback/operator:0.2.0"
    assert variables["FAILBACK_IMAGE_BROKER"] == "registry.example/broker:2"
    assert variables["FAILBACK_IMAGE_CHAOS"] == "failback/chaos:0.2.0"
    assert variables["FAILBACK_IMAGE_APACHE"] == "apache/rocketmq"


def test_the_operator_reads_every_setting_that_the_chart_writes(tmp_path: Path) -> None:
    from failback.operator.settings import read_settings

    words = ("watchNamespaces={shop,stock}", "resyncSeconds=90", "logFormat=text")
    found = objects(render(tmp_path, *words, "adminTimeoutSeconds=3", "clusterDomain=c.example"))
    settings_ = read_settings(variables_of(found, "failback-operator"))
    assert settings_.namespaces == ("shop", "stock")
    assert (settings_.resync_seconds, settings_.admin_timeout_seconds) == (90.0, 3.0)
    assert (settings_.domain, settings_.log_format) == ("c.example", "text")
    assert settings_.images["spark"] == "failback/analytics:0.2.0"
    assert settings_.leader_election is True


def test_policy_and_operator_have_the_same_lists(tmp_path: Path) -> None:
    """Each list of the operator's settings is in the expressions that the API server evaluates."""
    from failback.operator.settings import read_settings

    for mode in ("default", "everything"):
        found = objects(render(tmp_path, *MODES[mode]))
        permits = read_settings(variables_of(found, "failback-operator")).permits
        policy = one(found, "ValidatingAdmissionPolicy", "failback-permits-failback", None)["spec"]
        named = {each["name"]: each["expression"] for each in policy["variables"]}
        assert set(json.loads(named["images"])) == set(permits.images)
        for kind, accounts in (
            ("ChaosExperiment", permits.experiment_accounts),
            ("ReconsumptionReport", permits.report_accounts),
        ):
            (listed,) = re.findall(rf"'{kind}' \? (\[.*?\])", named["accounts"])
            assert set(json.loads(listed.replace("'", '"'))) == set(accounts)
        (listed,) = re.findall(r": (\[[^?]*\])$", named["accounts"])
        assert set(json.loads(listed.replace("'", '"'))) == {"", "default", *permits.pod_accounts}
        texts = [each["expression"] for each in policy["validations"]]
        for word, wanted in (
            ("s.secretKeyRef.name", permits.secrets),
            ("s.configMapKeyRef.name", permits.config_maps),
            ("imagePullSecrets", permits.pull_secrets),
            ("spark.master", permits.spark_masters),
            ("spark.conf", permits.spark_settings),
        ):
            (text,) = [each for each in texts if word in each]
            (listed,) = re.findall(r"(\[[^\[\]]*\])\.exists", text)
            assert set(json.loads(listed.replace("'", '"'))) == set(wanted), word
        (text,) = [each for each in texts if "spec.external" in each]
        (listed,) = re.findall(r" in (\[.*\])$", text)
        services = {"Template", *permits.external_services}
        assert set(json.loads(listed.replace("'", '"'))) == services


def test_every_variable_of_the_operator_is_read_somewhere(tmp_path: Path) -> None:
    found = objects(render(tmp_path, *MODES["everything"]))
    variables = variables_of(found, "failback-operator")
    written = {name for name in variables if name.startswith("FAILBACK_")}
    code = "".join(path.read_text() for path in (ROOT / "operator").rglob("*.py"))
    assert {name for name in written if f'"{name}"' not in code} == set()


def test_alerts_have_what_a_person_needs(tmp_path: Path) -> None:
    found = objects(render(tmp_path, *MODES["everything"]))
    (rule,) = [each for each in found if each["kind"] == "PrometheusRule"]
    alerts = [alert for group in rule["spec"]["groups"] for alert in group["rules"]]
    assert len(alerts) == 19
    assert len({alert["alert"] for alert in alerts}) == len(alerts)
    for alert in alerts:
        assert alert["labels"]["severity"] in ("warning", "critical")
        assert alert["annotations"]["runbook_url"].endswith(f"/runbooks/{alert['alert']}.md")
        assert alert["annotations"]["summary"]
        assert alert["expr"].count("(") == alert["expr"].count(")")


def test_alerts_have_no_link_before_somebody_says_where_the_pages_are(tmp_path: Path) -> None:
    found = objects(render(tmp_path, "prometheusRule.enabled=true"))
    (rule,) = [each for each in found if each["kind"] == "PrometheusRule"]
    for group in rule["spec"]["groups"]:
        assert not any("runbook_url" in alert["annotations"] for alert in group["rules"])


def test_the_collector_knows_every_option_that_the_chart_gives_it(tmp_path: Path) -> None:
    import typer

    from failback.cli.servers.collect import app

    found = objects(render(tmp_path, *MODES["collector"]))
    pod = deployment(found, "failback-collector")
    (container,) = pod["containers"]
    command, *given = container["args"]
    options = {name for each in typer.main.get_command(app).params for name in each.opts}
    assert command == "collect"
    assert {each.partition("=")[0] for each in given} <= options
    assert "--lake=s3://messaging/lake" in given
    mounted = [each["mountPath"] for each in container["volumeMounts"]]
    for path in ("/etc/failback/tokens/tokens", "/etc/failback/tls/tls.key", "/collected"):
        assert any(path.startswith(each) for each in mounted), path
    assert {each["name"] for each in container["volumeMounts"]} == {
        v["name"] for v in pod["volumes"]
    }
    assert "--keep-days=30" in given
    assert container["envFrom"] == [{"secretRef": {"name": "object-store"}}]
    assert schemes_of(container) == {"HTTPS"}
    assert one(found, "Deployment", "failback-collector")["spec"]["strategy"]["type"] == "Recreate"
    one(found, "Secret", "failback-collector-tokens")
    service = one(found, "Service", "failback-collector")
    assert [each["port"] for each in service["spec"]["ports"]] == [8095, 8096]
    (claim,) = [each for each in found if each["kind"] == "PersistentVolumeClaim"]
    assert claim["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    assert claim["spec"]["resources"]["requests"]["storage"] == "20Gi"


def test_a_dashboard_reads_every_namespace_that_is_watched_and_no_other(tmp_path: Path) -> None:
    found = objects(render(tmp_path, *MODES["dashboard"]))
    pod = deployment(found, "failback-dashboard")
    account = pod["serviceAccountName"]
    accounts = [
        each["metadata"]["namespace"]
        for each in found
        if (each["kind"], each["metadata"]["name"]) == ("ServiceAccount", account)
    ]
    assert accounts == ["failback"], "only where its pod is"
    subject = {"kind": "ServiceAccount", "name": account, "namespace": "failback"}
    for namespace in ("shop", "stock"):
        assert rights(found, "Role", account, namespace) == LOOKS
        assert one(found, "RoleBinding", account, namespace)["subjects"] == [subject]
    given = pod["containers"][0]["args"]
    shown = [each for each in given if each.startswith("--kube-namespace")]
    assert shown == ["--kube-namespace=shop", "--kube-namespace=stock"]


@pytest.mark.parametrize("words", [("dashboard.enabled=true",), MODES["dashboard"]])
def test_the_dashboard_takes_what_the_chart_gives_it(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    import typer

    from failback.cli.servers.dashboard import dashboard
    from failback.cli.shared.commands import add

    app = typer.Typer()
    add(app, dashboard)
    command = typer.main.get_command(app)
    pod = deployment(objects(render(tmp_path, *words)), "failback-dashboard")
    (container,) = pod["containers"]
    name, *given = container["args"]
    assert name == "dashboard"
    with command.make_context(name, list(given)) as context:
        told = context.params
    assert told["host"] == "0.0.0.0"
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    assert ports == {"page": told["port"], "metrics": told["metrics_port"]}
    mounts = {each["mountPath"]: each.get("readOnly", False) for each in container["volumeMounts"]}
    assert {each["name"] for each in container["volumeMounts"]} == {
        each["name"] for each in pod["volumes"]
    }
    files = ("tokens", "tls_cert", "tls_key", "audit")
    for path in (*filter(None, map(told.get, files)), told["runs"]):
        assert any(Path(path).is_relative_to(each) for each in mounts), path
    on_scratch = [each for each in mounts if Path(told["audit"]).is_relative_to(each)]
    assert not mounts[on_scratch[0]], "who logged in is written"


def test_a_dashboard_is_reached_through_an_ingress_and_its_certificate(tmp_path: Path) -> None:
    found = objects(render(tmp_path, *MODES["dashboard"]))
    ingress = one(found, "Ingress", "failback-dashboard")
    host = "failback.example.org"
    assert ingress["metadata"]["annotations"] == {"team": "messaging"}
    assert ingress["spec"]["ingressClassName"] == "nginx"
    assert ingress["spec"]["tls"] == [{"hosts": [host], "secretName": "ingress-tls"}]
    (rule,) = ingress["spec"]["rules"]
    (path,) = rule["http"]["paths"]
    backend = {"service": {"name": "failback-dashboard", "port": {"name": "page"}}}
    assert (rule["host"], path["backend"]) == (host, backend)
    one(found, "Secret", "failback-dashboard-tokens")
    pod = deployment(found, "failback-dashboard")
    (container,) = pod["containers"]
    assert schemes_of(container) == {"HTTPS"}
    (runs,) = [each for each in container["volumeMounts"] if each["name"] == "runs"]
    assert runs["readOnly"] is True
    (volume,) = [each for each in pod["volumes"] if each["name"] == "runs"]
    assert volume["persistentVolumeClaim"]["claimName"] == "failback-runs"


def test_an_exporter_takes_what_the_chart_gives_it(tmp_path: Path) -> None:
    import typer

    from failback.cli.servers.exporter import exporter
    from failback.cli.shared.commands import add

    app = typer.Typer()
    add(app, exporter)
    command = typer.main.get_command(app)
    found = objects(render(tmp_path, *MODES["exporters"]))
    told = {}
    for each in ("orders", "billing"):
        (container,) = deployment(found, f"failback-exporter-{each}")["containers"]
        name, *given = container["args"]
        assert name == "exporter"
        with command.make_context(name, list(given)) as context:
            told[each] = context.params
        assert container["ports"] == [{"name": "metrics", "containerPort": told[each]["port"]}]
        assert told[each]["host"] == "0.0.0.0"
        limited = container["resources"].get("limits", {}).get("memory") == "1Gi"
        assert limited is (each == "billing")
    service = one(found, "Service", "failback-exporter-orders")
    assert [port["port"] for port in service["spec"]["ports"]] == [5557]
    assert service["spec"]["selector"]["failback.dev/exporter"] == "orders"
    (endpoint,) = one(found, "PodMonitor", "failback-exporters")["spec"]["podMetricsEndpoints"]
    assert endpoint["interval"] == "15s"
    assert variables_of(found, "failback-operator")["FAILBACK_POD_MONITORS"] == "true"
    orders, billing = told["orders"], told["billing"]
    assert orders["namesrv"] == "ns-0.example.org:9876;ns-1.example.org:9876"
    assert (orders["interval_seconds"], orders["timeout_seconds"], orders["clients"]) == (
        10,
        3,
        True,
    )
    assert (billing["interval_seconds"], billing["timeout_seconds"], billing["clients"]) == (
        30,
        2,
        False,
    )
    assert list(billing["queue_topics"]) == ["paid", "%RETRY%billing"]


ACCESS = ("keySecret=key", "tls=true", "caSecret=ca", "certSecret=cert", "serverName=*")
SECRET_KEYS = {"key": ("tools.yml",), "ca": ("ca.crt",), "cert": ("tls.crt", "tls.key")}
"""What the values say that each has."""


def test_all_who_ask_a_guarded_cluster_find_its_secrets(tmp_path: Path) -> None:
    """Each container has a folder of its own here, in which its secrets lie as they are mounted."""
    ca = Authority(tmp_path / "certificates")
    shown = ca.issue("tools")
    content = {
        "tools.yml": b"accessKey: ops-key\nsecretKey: ops-secret\n",
        "ca.crt": ca.file.read_bytes(),
        "tls.crt": shown.chain.read_bytes(),
        "tls.key": shown.key.read_bytes(),
    }
    words = ["exporters[0].name=orders", "exporters[0].nameServers={ns-0.example.org:9876}"]
    words += ["exporters[0].observe=true", "dashboard.enabled=true", "dashboard.runsClaim=all-runs"]
    words += [f"{part}.access.{each}" for part in ("dashboard", "exporters[0]") for each in ACCESS]
    found = objects(render(tmp_path, *words))
    seen = set()
    for name in ("failback-exporter-orders", "failback-dashboard"):
        pod = deployment(found, name)
        secrets = {
            each["name"]: each["secret"]["secretName"]
            for each in pod["volumes"]
            if each.get("secret", {}).get("secretName") in SECRET_KEYS
        }
        for container in pod["containers"]:
            root = tmp_path / container["name"]
            for mount in (each for each in container["volumeMounts"] if each["name"] in secrets):
                folder = root / mount["mountPath"].lstrip("/")
                folder.mkdir(parents=True)
                for each in SECRET_KEYS[secrets[mount["name"]]]:
                    (folder / each).write_bytes(content[each])
            given = {each["name"]: each["value"] for each in container["env"]}
            there = {
                each: str(root / value.lstrip("/")) if value.startswith("/") else value
                for each, value in given.items()
            }
            access = find_cluster(Given(), there).access
            assert access is not None
            assert access.key_file is not None
            assert access.key_file.key.access_key == "ops-key"
            assert access.tls is not None
            used = {"FAILBACK_TLS_CA", "FAILBACK_TLS_CERT", "FAILBACK_TLS_KEY"}
            assert used | {"FAILBACK_TLS_SERVER_NAME"} < set(given)
            seen.add(container["name"])
    assert seen == {"exporter", "observe", "dashboard"}


def test_a_cluster_that_is_not_guarded_is_asked_without_secrets(tmp_path: Path) -> None:
    found = objects(render(tmp_path, *MODES["exporters"]))
    assert "FAILBACK_ACCESS_KEY_FILE" not in variables_of(found, "failback-exporter-orders")


def test_an_exporter_that_observes_writes_where_the_dashboard_reads(tmp_path: Path) -> None:
    import typer

    from failback.cli.measure.observe import observe
    from failback.cli.shared.commands import add

    app = typer.Typer()
    add(app, observe)
    billing = tuple(each for each in MODES["exporters"] if each.startswith("exporters[1]"))
    words = tuple(each.replace("exporters[1]", "exporters[0]") for each in billing)
    on = ("dashboard.enabled=true", "dashboard.runsClaim=all-runs", "exporters[0].observe=true")
    found = objects(render(tmp_path, *words, *on))
    pod = deployment(found, "failback-exporter-billing")
    exporter, observer = pod["containers"]
    name, *given = observer["args"]
    with typer.main.get_command(app).make_context(name, list(given)) as context:
        told = context.params
    assert told["out"] == Path("/runs/billing-%F")
    assert f"--namesrv={told['namesrv']}" in exporter["args"]
    assert observer["env"] == exporter["env"]  # the same access
    claims = [
        [each["persistentVolumeClaim"]["claimName"] for each in volumes if each["name"] == "runs"]
        for volumes in (pod["volumes"], deployment(found, "failback-dashboard")["volumes"])
    ]
    assert claims == [["all-runs"], ["all-runs"]]
    assert {"name": "runs", "mountPath": "/runs"} in observer["volumeMounts"]
    service = one(found, "Service", "failback-exporter-billing")
    assert service["spec"]["publishNotReadyAddresses"] is True
    elsewhere = objects(render(tmp_path, *words, *on, "exporters[0].runsClaim=own"))
    volumes = deployment(elsewhere, "failback-exporter-billing")["volumes"]
    assert {"name": "runs", "persistentVolumeClaim": {"claimName": "own"}} in volumes


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("exporters[0].name=orders",), "nameServers"),
        (("exporters[0].name=orders", "exporters[0].nameServers={ns-0}"), "nameServers/0"),
        (("exporters[0].name=Orders", "exporters[0].nameServers={ns-0:1}"), "exporters/0/name"),
        (
            ("exporters[0].name=a", "exporters[0].nameServers={ns-0:1}",
             "exporters[1].name=a", "exporters[1].nameServers={ns-1:1}"),
            "exporters[1].name: there is another exporter a",
        ),
        (
            ("exporters[0].name=a", "exporters[0].nameServers={ns-0:1}",
             "exporters[0].observe=true"),
            "exporters[0].observe: name the claim for its run folders in exporters[0].runsClaim",
        ),
    ],
)  # fmt: skip
def test_an_exporter_that_could_not_be_told_whom_to_ask_is_refused(
    words: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    done = helm(tmp_path, "template", "failback", str(CHART), *settings(words))
    assert done.returncode != 0
    assert message in done.stderr


def test_a_proxy_beside_the_dashboard_is_where_the_service_leads(tmp_path: Path) -> None:
    words = ("dashboard.enabled=true", "dashboard.tokensSecret=", "dashboard.proxy.port=4180",
             "dashboard.proxy.address=127.0.0.1", "dashboard.proxy.containers[0].name=oauth2",
             "dashboard.proxy.containers[0].image=registry.example/oauth2-proxy:7")  # fmt: skip
    found = objects(render(tmp_path, *words))
    pod = deployment(found, "failback-dashboard")
    assert [each["name"] for each in pod["containers"]] == ["dashboard", "oauth2"]
    assert not [each for each in pod["containers"][0]["args"] if "tokens" in each]
    service = one(found, "Service", "failback-dashboard")
    assert service["spec"]["ports"][0] == {"name": "page", "port": 8090, "targetPort": 4180}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("dashboard.tokensSecret=",), "dashboard.tokensSecret: name a Secret"),
        (
            ("dashboard.tokensSecret=", "dashboard.tokens=x", "dashboard.proxy.address=10.0.0.1"),
            "dashboard.tokens: needs a name for its Secret",
        ),
        (("dashboard.proxy.address=proxy.example",), "at '/dashboard/proxy/address'"),
    ],
)
def test_a_dashboard_that_nobody_could_use_is_refused(
    words: tuple[str, ...], message: str, tmp_path: Path
) -> None:
    flags = settings(("dashboard.enabled=true", *words))
    done = helm(tmp_path, "template", "failback", str(CHART), *flags)
    assert done.returncode != 0
    assert message in done.stderr


def test_values_of_an_earlier_release_get_one_line_with_the_flag(tmp_path: Path) -> None:
    """``--reuse-values`` renders this chart with the values of the release before as the whole."""
    chart = tmp_path / "chart"
    shutil.copytree(CHART, chart)
    shutil.copy(GOLDEN / "values-0.1.0.yaml", chart / "values.yaml")
    done = helm(tmp_path, "template", "failback", str(chart))
    said = done.stderr.strip().splitlines()[0]
    assert done.returncode != 0
    assert "values lack allow.weakSecurity, admissionPolicies.enabled" in said
    assert "--reset-then-reuse-values" in said


@pytest.mark.parametrize(
    "gone", ["networkPolicies", "networkPolicies.enabled", "admissionPolicies", "allow", "image"]
)
def test_a_null_takes_no_protection_away_in_silence(gone: str, tmp_path: Path) -> None:
    done = helm(tmp_path, "template", "failback", str(CHART), "--set", f"{gone}=null")
    assert done.returncode != 0
    assert f"values lack {gone}" in done.stderr


@pytest.mark.parametrize("gone", ["resources", "nodeSelector", "dashboard.resources.limits"])
def test_a_null_empties_what_may_be_empty(gone: str, tmp_path: Path) -> None:
    assert render(tmp_path, f"{gone}=null")


def test_a_value_that_is_gone_is_named(tmp_path: Path) -> None:
    flag = ("--set", "dashboard.collector.url=http://collector")
    done = helm(tmp_path, "template", "failback", str(CHART), *flag)
    assert "dashboard.collector: this release has no such value" in done.stderr
