"""Machines that share a cache, as by a home of all, have environments and images of their own where these differ."""

from __future__ import annotations

import platform
import sys
from dataclasses import replace

import pytest

from conf.launch_options import ContainerConfig
from conf.schema import StackConfig
from tracking.machine.stacks import container_images, uv_environment

OWN_PYTHON = StackConfig("mine", "uv", torch="2.6.0")
ITS_PYTHON = replace(OWN_PYTHON, python="3.12")
BOXED = StackConfig("boxed", "container", container=ContainerConfig("apptainer", "docker://example.org/trainer:1"))


def kept(monkeypatch: pytest.MonkeyPatch, machine: str, prefix: str) -> list[str]:
    """What a machine calls its environments and its image file."""
    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setattr(sys, "base_prefix", prefix)
    monkeypatch.setattr(container_images, "missing", lambda _: "")
    environments = [uv_environment.digest(stack) for stack in (OWN_PYTHON, ITS_PYTHON)]
    return [*environments, container_images.file_of(BOXED).name]


def test_another_architecture_has_environments_and_images_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = kept(monkeypatch, "x86_64", "/usr"), kept(monkeypatch, "aarch64", "/usr")
    assert not set(here) & set(there)
    assert here == kept(monkeypatch, "x86_64", "/usr")


def test_another_python_has_environments_of_its_own_that_link_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = kept(monkeypatch, "x86_64", "/usr"), kept(monkeypatch, "x86_64", "/opt/python")
    assert here[0] != there[0]
    assert here[1:] == there[1:], "a stack's own Python, and an image's"
