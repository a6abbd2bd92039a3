"""launch.py in the test's own process, for what it answers without a training: a refusal, a dry run."""

from __future__ import annotations

import io
import os
import sys
from contextlib import nullcontext, redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
from hydra._internal.hydra import Hydra
from hydra.core.global_hydra import GlobalHydra
from hydra.plugins.sweeper import Sweeper

import launch
from tests.support import process_state
from tests.support.commands import LAUNCH, Launched, environment, launched


def answer(cwd: Path, *arguments: str, **extra_env: str) -> Launched:
    """What `launch.py ARGUMENTS` answers, as tests.support.commands.launch has it. No supervisor starts ahead."""
    printed = io.StringIO()
    with process_state.kept(), pytest.MonkeyPatch.context() as patch:
        os.environ.clear()
        os.environ.update(environment(**extra_env))
        patch.chdir(cwd)
        patch.setattr(sys, "argv", [LAUNCH, *arguments])
        patch.setattr(launch, "ahead", lambda _: nullcontext())
        for owner, name in ((Hydra, "get_mode"), (Sweeper, "validate_batch_is_legal")):  # launch.py changes these.
            patch.setattr(owner, name, getattr(owner, name))
        with redirect_stdout(printed), redirect_stderr(printed):
            code = launch.main()
    GlobalHydra.instance().clear()
    return launched(code, printed.getvalue(), cwd)
