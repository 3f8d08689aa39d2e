"""The models of the kinds: bundled files, what the harness reads as well, what status may hold."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from failback.chaos.experiment.model import Spec as HarnessSpec
from failback.chaos.experiment.model import Workload as HarnessWorkload
from failback.chaos.experiment.reading import validate_fields
from failback.chaos.faults.catalogue import FAULTS, load_experiment
from failback.operator.kinds.base import parse_quantity
from failback.operator.kinds.chaos_experiment import (
    ChaosExperiment,
    ChaosExperimentSpec,
    FaultParameters,
)
from failback.operator.kinds.workload import Workload
from failback.operator.schema.decoding import KINDS, Invalid, decode
from failback.operator.schema.loading import read_documents
from tests.support.docs.yaml_examples import EXAMPLE_FILES, ROOT

EXPERIMENTS = [
    file
    for file in (*EXAMPLE_FILES, ROOT / "tests/unit/chaos/data/kill-then-restart.yaml")
    if any(each.data["kind"] == "ChaosExperiment" for each in read_documents(file))
]


def documents(file: Path) -> list[dict[str, Any]]:
    return [each for each in YAML(typ="safe", pure=True).load_all(file.read_text()) if each]


@pytest.mark.parametrize("file", EXAMPLE_FILES, ids=lambda file: f"{file.parent.name}/{file.name}")
def test_every_bundled_file_is_accepted(file: Path) -> None:
    for document in documents(file):
        if document["kind"] == "Secret":
            continue
        assert decode(document).name == document["metadata"]["name"]


@pytest.mark.parametrize("file", EXPERIMENTS, ids=lambda file: f"{file.parent.name}/{file.name}")
def test_operator_and_harness_read_the_same_experiment(file: Path) -> None:
    theirs = load_experiment(file)
    (document,) = (each for each in documents(file) if each["kind"] == "ChaosExperiment")
    ours = decode(document)
    assert isinstance(ours, ChaosExperiment)
    assert [arm.name for arm in ours.spec.arms] == [arm.name for arm in theirs.arms]
    mine = ours.spec.workload.model_dump(mode="json", by_alias=True)
    assert validate_fields(HarnessWorkload, mine, "") == theirs.spec.workload
    assert float(ours.spec.time_scale) == theirs.spec.time_scale


def test_the_experiment_has_the_harness_s_fields_and_defaults() -> None:
    def shape(model: Any) -> dict[str, Any]:
        return {info.alias or name: info.is_required() for name, info in model.model_fields.items()}

    assert shape(ChaosExperimentSpec) == shape(HarnessSpec)
    assert shape(Workload) == shape(HarnessWorkload)
    least = {"clusterRef": {"name": "c"}, "workload": {"topics": [{"name": "T"}]}}
    ours = ChaosExperimentSpec.model_validate(copy.deepcopy(least))
    theirs = HarnessSpec.model_validate(
        {"clusterRef": {"name": "c"}, "workload": {"topics": ({"name": "T"},)}}
    )
    mine = ours.model_dump(mode="json", by_alias=True, exclude={"job", "time_scale"})
    wanted = theirs.model_dump(mode="json", exclude={"job", "time_scale"})
    read = validate_fields(HarnessSpec, mine, "")
    assert read.model_dump(mode="json", exclude={"job", "time_scale"}) == wanted


def test_every_parameter_of_the_fault_catalogue_has_a_field() -> None:
    fields = {info.alias or name for name, info in FaultParameters.model_fields.items()}
    known = {parameter.name for fault in FAULTS for parameter in fault.kind.parameters}
    assert known - fields == set()


@pytest.mark.parametrize(
    ("kind", "spec", "sentence"),
    [
        (
            "RoleSwitch",
            {"clusterRef": {"name": "a"}, "pair": "a-0", "targetMembr": 1},
            'spec.targetMembr: unknown field, did you mean "targetMember"?',
        ),
        (
            "RoleSwitch",
            {"clusterRef": {"name": "a"}, "pair": 0, "targetMember": 1},
            "spec.pair: must be the broker name of a pair, such as orders-1, got 0",
        ),
        (
            "RoleSwitch",
            {"clusterRef": {"name": "a"}, "pair": "a-0"},
            "spec.targetMember: is required",
        ),
        (
            "RoleSwitch",
            {"clusterRef": {"name": "a"}, "pair": "a-0", "targetMember": 1, "offsetPolicy": "Max"},
            'spec.offsetPolicy: must be "CopyMax", "WaitSync" or "None", got "Max"',
        ),
        (
            "ReconsumptionReport",
            {},
            "spec: exactly one of experimentRef and inputs",
        ),
        (
            "ReconsumptionReport",
            {"experimentRef": {"name": "x"}, "thresholds": {"maxDuplicateRatio": 0.01}},
            "spec.thresholds.maxDuplicateRatio: must be a decimal number in quotes such as"
            ' "0.05", got 0.01',
        ),
        (
            "ReconsumptionReport",
            {"experimentRef": {"name": "x"}, "spark": {"drivr": {}}},
            'spec.spark.drivr: unknown field, did you mean "driver"?',
        ),
    ],
)
def test_a_wrong_field_is_named(kind: str, spec: dict[str, Any], sentence: str) -> None:
    document = {
        "apiVersion": "failback.dev/v1alpha1",
        "kind": kind,
        "metadata": {"name": "x"},
        "spec": spec,
    }
    with pytest.raises(Invalid) as caught:
        decode(document)
    assert str(caught.value) == sentence


def test_what_an_api_server_adds_to_metadata_is_accepted() -> None:
    stored = {
        "apiVersion": "failback.dev/v1alpha1",
        "kind": "BrokerCluster",
        "metadata": {
            "name": "orders",
            "namespace": "shop",
            "uid": "8f5d",
            "generation": 4,
            "resourceVersion": "77",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "deletionTimestamp": "2026-01-01T00:01:00Z",
            "deletionGracePeriodSeconds": 0,
            "finalizers": ["failback.dev/undo"],
            "ownerReferences": [{"kind": "X"}],
            "managedFields": [{"manager": "kubectl"}],
        },
        "spec": {"nameServerRef": {"name": "main"}},
        "status": {"anything": [1]},
    }
    assert decode(stored).metadata.generation == 4


@pytest.mark.parametrize(("text", "value"), [("20Gi", 20 * 2**30), ("500m", 0.5), ("2", 2)])
def test_quantities_are_numbers_of_their_base_unit(text: str, value: float) -> None:
    assert float(parse_quantity(text)) == value


@pytest.mark.parametrize("text", ["", "1.", "1Gi\n", "Gi", "-1", "1e3", "1 Gi"])
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="must be a quantity"):
        parse_quantity(text)


def test_all_eight_kinds_are_known() -> None:
    assert list(KINDS) == [
        "NameServer",
        "BrokerCluster",
        "Topic",
        "SubscriptionGroup",
        "RoleSwitch",
        "OffsetSnapshot",
        "ChaosExperiment",
        "ReconsumptionReport",
    ]
