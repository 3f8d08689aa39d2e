"""What Spark needs to read an object store: Hadoop's S3A, which pyspark does not bring along.

The jars come from the folder that ``FAILBACK_SPARK_JARS`` names, else Spark fetches them from Maven
Central by the coordinates below when it starts. Amazon's modules are named one by one: the bundle
that S3A asks for has 600 MB of clients for other services.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from failback.analytics.errors import EngineUnavailable
from failback.analytics.lake.store import LakeStore

HADOOP_VERSION: Final = "3.5.0"
"""Of the Hadoop client in pyspark 4.3; S3A has to be of the same version."""
SDK_VERSION: Final = "2.35.4"
PACKAGES: Final = (
    f"org.apache.hadoop:hadoop-aws:{HADOOP_VERSION}",
    f"software.amazon.awssdk:s3:{SDK_VERSION}",
    f"software.amazon.awssdk:s3-transfer-manager:{SDK_VERSION}",
    f"software.amazon.awssdk:sts:{SDK_VERSION}",
    f"software.amazon.awssdk:apache-client:{SDK_VERSION}",
    f"software.amazon.awssdk:netty-nio-client:{SDK_VERSION}",
)
EXCLUDES: Final = ("software.amazon.awssdk:bundle",)
JARS: Final = "FAILBACK_SPARK_JARS"


def settings_for(stores: Sequence[LakeStore], environment: Mapping[str, str]) -> dict[str, str]:
    """Spark settings to read these lakes; none for folders.

    Raises:
        EngineUnavailable: ``FAILBACK_SPARK_JARS`` names a folder without jars.
    """
    found: dict[str, str] = {}
    for store in stores:
        found |= store.spark_settings()
    if all(store.folder is not None for store in stores):
        return {}
    given = environment.get(JARS)
    if given is None:
        return found | {
            "spark.jars.packages": ",".join(PACKAGES),
            "spark.jars.excludes": ",".join(EXCLUDES),
        }
    jars = sorted(str(path.absolute()) for path in Path(given).glob("*.jar"))
    if not jars:
        raise EngineUnavailable(f"{JARS}={given} has no jars")
    return found | {"spark.jars": ",".join(jars)}


def settings_here(stores: Sequence[LakeStore]) -> dict[str, str]:
    """The same with the environment of this process."""
    return settings_for(stores, os.environ)
