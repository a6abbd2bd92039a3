"""torchtitan's log is read as it prints it, and ours beside it is the same model."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.larger import torchtitan_steps
from trainers.loop.build import make_data, make_module
from trainers.workload import load_workload

LOG = """[rank0]:[titan] 2026-11-29 16:33:37,901 - root - INFO - Model llama3 8B size: 8,030,261,248 total parameters
[rank0]:[titan] 2026-11-29 16:34:13,804 - root - INFO - step:  1  loss: 12.25000  grad_norm:  3.3682  \
memory: 93.13GiB(66.67%)  tps: 512  tflops: 29.62  mfu: 3.00%
[rank0]:[titan] 2026-11-29 16:34:18,104 - root - INFO - step:  2  loss: 11.75000  grad_norm:     nan  \
memory: 55.88GiB(40.00%)  tps: 7,000  tflops: 405.39  mfu: 40.99%
"""
# Of torchtitan 0.2.2's Transformer, by its own get_nparams_and_flops.
PARAMETERS, GFLOPS = {False: 8_030_261_248, True: 6_163_712}, {False: 57.91445, True: 0.038555}


def test_the_figures_are_those_of_the_log() -> None:
    figures = torchtitan_steps.logged(LOG)
    assert figures["rates"] == [512, 7000]
    assert figures["loss"] == 11.75
    assert figures["reserved_gb"] == pytest.approx(100, abs=0.01), "GiB become GB, and the first step needs the most"
    assert figures["parameters"] == PARAMETERS[False]
    assert figures["flops_a_token"] / 1e9 == pytest.approx(GFLOPS[False], rel=1e-4)
    with pytest.raises(AssertionError, match="no line of a step"):
        torchtitan_steps.logged(LOG.partition("\n")[0])


def given(tiny: bool) -> argparse.Namespace:
    flavor, vocabulary, sequence = torchtitan_steps.SIZES[tiny]
    shape: dict[str, Any] = {"vocabulary": vocabulary, "sequence": sequence, "sequences": 1, "tokens": 4 * sequence}
    return argparse.Namespace(
        **shape, flavor=flavor, tiny=tiny, gpus=0, processes=1, precision="bf16", checkpointing="none"
    )


@pytest.mark.parametrize("tiny", [False, True])
def test_ours_has_the_parameters_and_flops_of_torchtitans(tiny: bool) -> None:
    config = torchtitan_steps.our_config(given(tiny))
    workload = load_workload(config)
    with torch.device("meta"):
        module: Any = make_module(workload, make_data(workload, config.dataset), config)
    assert sum(parameter.numel() for parameter in module.parameters()) == PARAMETERS[tiny]
    assert module.flops_per_sample() / 1e9 == pytest.approx(GFLOPS[tiny], rel=1e-3), "torchtitan counts norms"


def test_a_words_id_is_the_word(tmp_path: Path) -> None:
    torchtitan_steps.write_text(tmp_path, vocabulary=64, sequence=8, sequences=3)
    tokenizer = json.loads((tmp_path / "tokenizer" / "tokenizer.json").read_text())
    lines = (tmp_path / "data" / "data.json").read_text().splitlines()
    assert len(lines) == 3
    for line in lines:
        words = json.loads(line)["text"].split()
        assert [tokenizer["model"]["vocab"][word] for word in words] == [int(word) for word in words]
        assert len(words) == 9, "a sequence and the last target"


def test_the_table_gives_ours_over_torchtitan_with_the_error_of_both() -> None:
    common = {"precision": "bf16", "reserved_gb": 98.76, "parameters": PARAMETERS[False], "flops_a_token": 57.9e9}
    rates = {"torchtitan": [99.0, 100.0, 101.0], "ours": [218.0, 220.0, 222.0]}
    rows = [common | {"side": side, "timed": values} for side, values in rates.items()]
    *_, titan, ours = torchtitan_steps.table(rows).splitlines()
    assert titan == "| torchtitan | bf16 | 3 | 100 ± 1 |  | 98.8 GB | 8,030,261,248 | 57.90 |"
    assert "| 220 ± 1 | 2.200 ± 0.017 |" in ours, "2.2 * hypot(0.577 / 100, 1.155 / 220)"
    alone = torchtitan_steps.table(rows[1:])
    assert "2.200" not in alone
