"""A fingerprint's tags, list of packages and table, and the check of the versions that a config expects."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conf.schema import ConfigError
from tests.support.fingerprints import fingerprint, torch_module
from tracking.machine.environment.fingerprint import EXPECTABLE, mismatches, requirements, tags
from tracking.machine.environment.fingerprint_table import format_table


def test_tags_are_those_of_the_contract() -> None:
    facts = fingerprint("h200-x4", [0, 1], torch_module()) | {"git": {"commit": "abc", "dirty": True}}
    values = tags(facts, image="example.org/timetrial:1")
    names = (
        "gpu gpu_count driver cuda cudnn nccl torch topology cpu kernel python node image stack_id hardware_id affinity"
    )
    values.pop("env.libraries", None)  # those that this process has loaded, if any
    names += " framework"
    assert set(values) == {f"env.{name}" for name in names.split()} | {"git.commit", "git.dirty"}
    assert (values["env.gpu"], values["env.gpu_count"], values["env.topology"]) == ("NVIDIA H200", "2", "NV18")
    assert (values["env.driver"], values["env.cudnn"], values["git.dirty"]) == ("580.159.04", "9.10.2", "true")
    assert all(isinstance(value, str) and len(value) < 8_000 for value in values.values())


def test_stack_id_and_hardware_id_change_with_what_they_stand_for() -> None:
    base = tags(fingerprint("h200-x4", [0, 1], torch_module()))
    assert base == tags(fingerprint("h200-x4", [2, 3], torch_module()))
    fewer = tags(fingerprint("h200-x4", [0], torch_module()))
    assert fewer["env.stack_id"] == base["env.stack_id"]
    assert fewer["env.hardware_id"] != base["env.hardware_id"]
    newer = tags(fingerprint("h200-x4", [0, 1], torch_module(__version__="2.12.0+cu130")))
    assert newer["env.stack_id"] != base["env.stack_id"]
    assert newer["env.hardware_id"] == base["env.hardware_id"]
    imaged = tags(fingerprint("h200-x4", [0, 1], torch_module()), image="x")
    assert imaged["env.stack_id"] != base["env.stack_id"]
    assert "env.stack_id" not in tags(fingerprint("h200-x4", [0, 1]))  # what torch would load is not known


def test_gpus_at_both_sockets_are_other_hardware_than_gpus_at_one() -> None:
    """As a C4140's configurations K and M, which have the same GPUs, links and CPUs."""
    facts = fingerprint("h200-x4", [0, 1, 2, 3], torch_module())
    one_socket = tags(facts)
    facts["topology"]["cpu_affinity"] |= {"GPU2": "64-127", "GPU3": "64-127"}
    both = tags(facts)
    assert (one_socket["env.affinity"], both["env.affinity"]) == ("4", "2+2")
    assert one_socket["env.hardware_id"] != both["env.hardware_id"]
    assert one_socket["env.topology"] == both["env.topology"]
    del facts["topology"]["cpu_affinity"]["GPU3"]
    assert "env.affinity" not in tags(facts)
    assert tags(facts)["env.hardware_id"] == one_socket["env.hardware_id"]


def test_names_of_mixed_gpus_are_counted_and_those_of_equal_ones_are_not() -> None:
    facts = fingerprint("h200-x4", [0, 1, 2, 3], torch_module())
    equal = tags(facts)
    mixed = []
    for number in (1, 3):
        for index, gpu in enumerate(facts["used"]):
            gpu["name"] = "A100" if index < number else "H100"
        mixed.append(tags(facts))
    assert [values["env.gpu"] for values in mixed] == ["1 A100 + 3 H100", "3 A100 + 1 H100"]
    assert mixed[0]["env.hardware_id"] != mixed[1]["env.hardware_id"]
    assert equal["env.gpu"] == "NVIDIA H200"


@pytest.mark.parametrize("part", ["driver", "cuda_driver", "cuda", "cudnn", "nccl", "torch", "loaded"])
def test_stack_id_changes_with_each_of_its_parts(part: str) -> None:
    facts = fingerprint("h200-x4", [0, 1], torch_module())
    before = tags(facts)["env.stack_id"]
    facts["software"][part] = "0.1"
    assert tags(facts)["env.stack_id"] != before


versions = st.lists(st.integers(0, 120).map(str), min_size=1, max_size=4).map(".".join)


@given(st.sampled_from(EXPECTABLE), versions, st.sampled_from(["", "+cu130"]))
def test_version_matches_itself_and_its_dotted_prefixes_only(key: str, version: str, local: str) -> None:
    facts = {"software": {key: version + local}}
    parts = version.split(".")
    for length in range(1, len(parts) + 1):
        assert mismatches(facts, {key: ".".join(parts[:length])}) == []
    assert mismatches(facts, {key: version + local}) == []
    (sentence,) = mismatches(facts, {key: version + "0.1"})
    assert key in sentence
    assert version + local in sentence
    assert version + "0.1" in sentence


def test_a_version_that_is_not_as_expected_is_told_with_both() -> None:
    facts = {"software": {"torch": "2.110.0+cu130", "python": "3.12.3"}}
    assert mismatches(facts, {}) == []
    assert mismatches(facts, {"torch": "2.11", "python": "3.12", "cuda": "13.0"}) == [
        "stack.expect.torch: expected 2.11, found 2.110.0+cu130",
        "stack.expect.cuda: expected 13.0, found none",
    ]
    with pytest.raises(ConfigError, match=r"stack\.expect\.pytorch: no such key\. Allowed: torch, cuda"):
        mismatches(facts, {"pytorch": "2.11"})


def test_requirements_are_sorted_lines() -> None:
    assert requirements({"software": {"packages": {"torch": "2.11.0+cu130", "numpy": "2.3"}}}) == (
        "numpy==2.3\ntorch==2.11.0+cu130\n"
    )
    assert f"\npytest=={pytest.__version__}\n" in requirements(fingerprint("h200-x4"))


def test_the_printed_table_marks_the_gpus_in_use() -> None:
    table = format_table(fingerprint("h200-x4", [2], torch_module()))
    assert re.search(r"GPU 2 +NVIDIA H200, 140.4 GiB, 700 W, 1980 MHz, 18 NVLinks \(in use\)\n", table)
    assert table.count("in use") == 1
    assert re.search(r"topology +single\n", table)
    assert re.search(r"driver +580.159.04\n", table)
    assert re.search(r"nccl +2.28.3\n", table)
    assert re.search(r"GPUs +none\n", format_table(fingerprint("no such folder")))
    assert "2 MIG devices" in format_table(fingerprint("handmade-mig"))
