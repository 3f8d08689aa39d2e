"""What resources may name: images, accounts, Secrets and more, by lists of the chart.

The right to write a resource gives no other right. So everything that a pod could get and the
resource's author could not is on a list. By default a list has only the chart's own names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

OWN_IMAGES: Final = ("failback/broker", "failback/chaos", "failback/analytics", "apache/rocketmq")
SPARK_SETTINGS: Final = (
    "spark.default.parallelism",
    "spark.driver.memoryOverhead*",
    "spark.executor.memoryOverhead*",
    "spark.hadoop.fs.s3a.attempts.maximum",
    "spark.hadoop.fs.s3a.block.size",
    "spark.hadoop.fs.s3a.connection.*",
    "spark.hadoop.fs.s3a.endpoint.region",
    "spark.hadoop.fs.s3a.fast.upload*",
    "spark.hadoop.fs.s3a.multipart.*",
    "spark.hadoop.fs.s3a.path.style.access",
    "spark.hadoop.fs.s3a.readahead.range",
    "spark.hadoop.fs.s3a.retry.*",
    "spark.hadoop.fs.s3a.threads.*",
    "spark.memory.*",
    "spark.network.timeout",
    "spark.reducer.*",
    "spark.shuffle.*",
    "spark.speculation*",
    "spark.sql.adaptive.*",
    "spark.sql.files.*",
    "spark.sql.shuffle.*",
    "spark.task.*",
)
COMMAND_VARIABLES: Final = (
    "BASH_*",
    "BROWSER",
    "CLASSPATH",
    "ENV",
    "GCONV_PATH",
    "IFS",
    "JAVA_*",
    "JDK_*",
    "LD_*",
    "MALLOC_*",
    "NODE_*",
    "OPENSSL_*",
    "PATH",
    "PERL*",
    "PYTHON*",
    "SHELLOPTS",
    "SSL*",
    "_JAVA_*",
)
"""Variables from which an interpreter, a linker or a library takes code, or whom it trusts."""
JAVA_OPTION: Final = (
    r"^(-X(m[snx]|ss)[0-9]+[kKmMgG]?"
    r"|-XX:[+-]?[A-Za-z0-9]+(=[0-9.]+[kKmMgG%]?)?"
    r"|-(server|client|verbose:gc)"
    r"|-D(user[.]timezone|file[.]encoding|rocketmq[.][A-Za-z0-9_.]+|com[.]rocketmq[.][A-Za-z0-9_.]+"
    r"|io[.]netty[.][A-Za-z0-9_.]+|java[.]net[.]prefer[A-Za-z0-9]+)=[A-Za-z0-9_.:/+-]*)$"
)
"""An option of ``javaOptions`` that sets memory, collection or a property; no text is a command."""
POD_ANNOTATIONS: Final = (
    "cluster-autoscaler.kubernetes.io/safe-to-evict", "fluentbit.io/*",
    "karpenter.sh/do-not-disrupt", "kubectl.kubernetes.io/*", "prometheus.io/*",
)  # fmt: skip
SERVICE_ANNOTATIONS: Final = (
    "cloud.google.com/*", "lbipam.cilium.io/*", "metallb.io/*", "metallb.universe.tf/*",
    "networking.gke.io/*", "service.beta.kubernetes.io/*", "service.kubernetes.io/*",
)  # fmt: skip
"""By which clouds choose the kind of load balancer. None of them makes a name in a DNS."""
SPARK_MASTERS: Final = (
    "local*",
    "k8s://https://kubernetes.default.svc",
    "k8s://https://kubernetes.default.svc:443",
)
EXPERIMENT_ACCOUNT: Final = "failback-chaos"
REPORT_ACCOUNT: Final = "failback-spark"
"""What resources name by default: the chart's own account, under any name of its release."""
_ANYTHING: Final = "*"


@dataclass(frozen=True, slots=True)
class Permits:
    """The lists. An entry that ends in ``*`` allows what begins with the rest."""

    images: tuple[str, ...] = OWN_IMAGES
    """Repositories, with any tag or digest; one that ends in ``/`` allows all below."""
    pod_accounts: tuple[str, ...] = ()
    """ServiceAccounts of brokers and name servers."""
    experiment_accounts: tuple[str, ...] = (EXPERIMENT_ACCOUNT,)
    report_accounts: tuple[str, ...] = (REPORT_ACCOUNT,)
    secrets: tuple[str, ...] = ()
    """Secrets that variables may be read from."""
    config_maps: tuple[str, ...] = ()
    """ConfigMaps that variables and the configuration of logback may be read from."""
    pull_secrets: tuple[str, ...] = ()
    environment: tuple[str, ...] = ()
    """Variables that may be set although code can come from them."""
    java_options: tuple[str, ...] = ()
    """Options of ``javaOptions`` beside those of memory, collection and known properties."""
    pod_annotations: tuple[str, ...] = POD_ANNOTATIONS
    """Annotations of pods by which nothing else changes them; keys without a prefix are free."""
    pod_labels: tuple[str, ...] = ()
    service_annotations: tuple[str, ...] = SERVICE_ANNOTATIONS
    spark_settings: tuple[str, ...] = SPARK_SETTINGS
    spark_masters: tuple[str, ...] = SPARK_MASTERS
    name_servers: tuple[str, ...] = ()
    """``host:port`` of name servers outside the namespace that orders may go to."""
    external_services: tuple[str, ...] = ()
    """Types of Services for clients outside: ``LoadBalancer``, ``NodePort``."""
    weak_security: bool = False
    """Whether a pod may be less than Pod Security `restricted`."""
    own_account: str = "failback-operator"
    """The operator's own account, which no resource may name."""
    experiments: bool = True
    """Whether the chart has experiments at all."""
    admission_policies: bool = True
    """Whether the API server has the chart's admission policies."""


def read_permits(environment: Mapping[str, str]) -> Permits:
    """Return the lists of the operator's environment; what is unset has its default."""

    def words(name: str, default: tuple[str, ...] = ()) -> tuple[str, ...]:
        text = environment.get(name)
        return default if text is None else tuple(filter(None, text.replace(" ", "").split(",")))

    more = words("FAILBACK_ALLOWED_ACCOUNTS")
    given = [text for key, text in environment.items() if key.startswith("FAILBACK_IMAGE_")]
    chaos = environment.get("FAILBACK_CHAOS_ACCOUNT") or EXPERIMENT_ACCOUNT
    spark = environment.get("FAILBACK_SPARK_ACCOUNT") or REPORT_ACCOUNT
    return Permits(
        images=(*OWN_IMAGES, *map(repository, given), *words("FAILBACK_ALLOWED_IMAGES")),
        pod_accounts=more,
        experiment_accounts=(chaos, EXPERIMENT_ACCOUNT, *more),
        report_accounts=(spark, REPORT_ACCOUNT, *more),
        secrets=words("FAILBACK_ALLOWED_SECRETS"),
        config_maps=words("FAILBACK_ALLOWED_CONFIG_MAPS"),
        pull_secrets=words("FAILBACK_ALLOWED_PULL_SECRETS"),
        environment=words("FAILBACK_ALLOWED_ENVIRONMENT"),
        java_options=words("FAILBACK_ALLOWED_JAVA_OPTIONS"),
        pod_annotations=(*POD_ANNOTATIONS, *words("FAILBACK_ALLOWED_POD_ANNOTATIONS")),
        pod_labels=words("FAILBACK_ALLOWED_POD_LABELS"),
        service_annotations=(*SERVICE_ANNOTATIONS, *words("FAILBACK_ALLOWED_SERVICE_ANNOTATIONS")),
        spark_settings=(*SPARK_SETTINGS, *words("FAILBACK_ALLOWED_SPARK_SETTINGS")),
        spark_masters=(*SPARK_MASTERS, *words("FAILBACK_ALLOWED_SPARK_MASTERS")),
        name_servers=words("FAILBACK_ALLOWED_NAME_SERVERS"),
        external_services=words("FAILBACK_ALLOWED_EXTERNAL_SERVICES"),
        weak_security=environment.get("FAILBACK_ALLOW_WEAK_SECURITY", "").lower() == "true",
        own_account=environment.get("FAILBACK_SERVICE_ACCOUNT") or "failback-operator",
        experiments=environment.get("FAILBACK_EXPERIMENTS", "true").lower() == "true",
        admission_policies=environment.get("FAILBACK_ADMISSION_POLICIES", "true").lower() == "true",
    )


def repository(image: str) -> str:
    """Return an image without its tag and digest."""
    image = image.partition("@")[0]
    host, slash, name = image.rpartition("/")
    return f"{host}{slash}{name.partition(':')[0]}"


def is_image_allowed(image: str, allowed: tuple[str, ...]) -> bool:
    """Tell whether an image is of one of these repositories, or below one that ends in ``/``."""
    return any(
        each == _ANYTHING
        or image == each
        or repository(image) == each
        or (each.endswith("/") and image.startswith(each))
        for each in allowed
    )


def is_named(name: str, allowed: tuple[str, ...]) -> bool:
    """Tell whether one of the entries names ``name``."""
    return any(
        name == each or (each.endswith("*") and name.startswith(each[:-1])) for each in allowed
    )
