"""What a dry run says of the tracking server."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from conf.launch_options import TrackingConfig
from conf.schema import ConfigError
from tests.support.mlflow_server import answering
from tracking.jobs.follow.uploads import Uploads

pytestmark = pytest.mark.usefixtures("mlflow_environment")


def said(uri: str, offline: bool = False) -> str:
    printed = io.StringIO()
    Uploads(TrackingConfig(uri=uri, offline=offline), Console(file=printed, width=200)).say_server(False, False)
    return printed.getvalue()


def test_it_says_whether_the_server_takes_runs() -> None:
    with answering(200) as (uri, _):
        assert said(uri) == f"tracking server: {uri} answers and takes runs\n"
        assert said(uri, offline=True) == ""
    assert "nothing listens there" in said(uri)
    assert "is uploaded when the server answers" in said(uri)
    with answering(401) as (uri, _), pytest.raises(ConfigError, match=r"tracking\.uri: "):
        said(uri)
    assert said("sqlite:///none.db") == ""
