"""The topology parsers on captured and hand-written output, and the rules of the class."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracking.machine.environment.topology import classify, parse_matrix, parse_nvlink

FIXTURES = Path(__file__).parents[3] / "fixtures"
SPEED = ("NV18", "NV12", "NV4", "NV2", "NV1", "PIX", "PXB", "PHB", "NODE", "SYS")  # fastest first


def read(fixture: str, command: str) -> str:
    return (FIXTURES / fixture / f"nvidia-smi_{command}.txt").read_text()


def test_the_matrix_of_gpus_on_nvlink_is_read() -> None:
    matrix = parse_matrix(read("h200-x4", "topo_-m"))
    assert matrix["links"]["GPU2"] == {"GPU0": "NV18", "GPU1": "NV18", "GPU3": "NV18"}
    assert matrix["cpu_affinity"] == {f"GPU{index}": "0-63" for index in range(4)}
    assert matrix["numa_node"] == {f"GPU{index}": "0" for index in range(4)}


def test_pcie_matrix_with_network_cards_and_terminal_codes() -> None:
    matrix = parse_matrix(read("handmade-pcie", "topo_-m"))
    assert set(matrix["links"]) == {"GPU0", "GPU1", "GPU2", "GPU3", "NIC0", "NIC1"}
    assert matrix["links"]["GPU0"] == {"GPU1": "PIX", "GPU2": "PHB", "GPU3": "SYS", "NIC0": "PIX", "NIC1": "SYS"}
    # GPU2 has an empty affinity and "N/A": left out, and not taken for its neighbour's.
    assert matrix["cpu_affinity"] == {"GPU0": "0-23,48-71", "GPU1": "0-23,48-71", "GPU3": "24-47,72-95"}
    assert matrix["numa_node"] == {"GPU0": "0", "GPU1": "0", "GPU3": "1"}


@pytest.mark.parametrize(
    ("fixture", "indices", "expected"),
    [
        ("h200-x4", [], "none"),
        ("h200-x4", [3], "single"),
        ("h200-x4", [1, 3], "NV18"),
        ("h200-x4", [0, 1, 2, 3], "NV18"),
        ("handmade-pcie", [0, 1], "PIX"),
        ("handmade-pcie", [0, 1, 2], "PHB"),
        ("handmade-pcie", [2, 3], "NODE"),
        ("handmade-pcie", [0, 1, 2, 3], "SYS"),
        ("h200-x4", [0, 7], None),
        ("h200-x4", [0, 0], None),
        ("h200-x4", [None, None], None),
    ],
)
def test_class_of_the_gpus_in_use(fixture: str, indices: list[int | None], expected: str | None) -> None:
    assert classify(parse_matrix(read(fixture, "topo_-m"))["links"], indices) == expected


def test_label_that_is_not_in_the_legend_is_not_ranked() -> None:
    assert classify({"GPU0": {"GPU1": "XYZ"}}, [0, 1]) is None


@given(st.lists(st.sampled_from(SPEED), min_size=6, max_size=6), st.permutations(range(4)))
def test_class_is_the_slowest_pair_in_any_order(labels: list[str], order: list[int]) -> None:
    links: dict[str, dict[str, str]] = {f"GPU{index}": {} for index in range(4)}
    for (a, b), label in zip(combinations(range(4), 2), labels, strict=True):
        links[f"GPU{a}"][f"GPU{b}"] = links[f"GPU{b}"][f"GPU{a}"] = label
    assert classify(links, order) == max(labels, key=SPEED.index)


def test_nvlink_counts_and_speed() -> None:
    assert parse_nvlink(read("h200-x4", "nvlink_-s")) == {
        index: {"nvlink_links": 18, "nvlink_gb_per_sec": 26.562} for index in range(4)
    }
    assert parse_nvlink(read("handmade-pcie", "nvlink_-s")) == {index: {"nvlink_links": 0} for index in range(4)}


def test_inactive_links_do_not_count() -> None:
    text = "GPU 0: NVIDIA A100 (UUID: GPU-1)\n\t Link 0: 25 GB/s\n\t Link 1: <inactive>\n\t Link 2: 25 GB/s\n"
    assert parse_nvlink(text) == {0: {"nvlink_links": 2, "nvlink_gb_per_sec": 25.0}}


@given(
    st.text() | st.lists(st.sampled_from(["GPU0", "\t", "NV18", " X ", "\n", "CPU Affinity", "GPU 1:"])).map("".join)
)
def test_any_other_text_is_read_as_nothing_or_less(text: str) -> None:
    parse_matrix(text)
    parse_nvlink(text)
    assert parse_matrix("No devices were found\n") == {} == parse_nvlink("")


def test_a_network_card_may_stand_before_the_gpus() -> None:
    text = "\tNIC0\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\nNIC0\t X \tPIX\tSYS\t\t\n"
    text += "GPU0\tPIX\t X \tNV4\t0-7\t0\nGPU1\tSYS\tNV4\t X \t0-7\t0\n"
    matrix = parse_matrix(text)
    assert matrix["links"]["GPU0"] == {"NIC0": "PIX", "GPU1": "NV4"}
    assert classify(matrix["links"], [0, 1]) == "NV4"


def test_old_drivers_call_sys_soc() -> None:
    matrix = parse_matrix("\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tSOC\t0-7\nGPU1\tSOC\t X \t8-15\n")
    assert classify(matrix["links"], [0, 1]) == "SYS"
