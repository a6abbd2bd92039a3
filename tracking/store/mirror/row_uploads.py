"""Send a batch of the journal to the server. Values that it refuses are named and do not hold back the other rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tracking.store.mirror.log_batches import LogBatch, shortened
from tracking.store.mirror.mlflow_run import UID_TAG
from tracking.store.server import PatientClient, TrackingRefused

if TYPE_CHECKING:
    from mlflow.entities import Metric

MAX_MESSAGE_CHARS = 300


def send(client: PatientClient, run_id: str, uid: str, batch: LogBatch) -> list[str]:
    """Send a batch to the run with this uid; return the refused params and tags as "params KEY" and "tags KEY".

    MLflow refuses a whole request for one param that somebody else has set to another value, or for a text that is too
    long for an older server. These values are removed from the batch and added to its `refused`. Raises TrackingRefused
    if the run accepts nothing at all, or no metrics.
    """
    from mlflow.entities import Metric

    metrics = [Metric(*metric) for metric in batch.metrics]
    try:
        _send(client, run_id, metrics, batch.params, batch.tags)
    except TrackingRefused:
        if not batch.params and not batch.tags:
            raise
        _send(client, run_id, metrics, tags={UID_TAG: uid})  # the run has this tag, so a refusal is not due to it
        params = _send_in_halves(client, run_id, batch.params, "params")
        tags = _send_in_halves(client, run_id, batch.tags, "tags")
        batch.refused += [f"params: {words}" for words in _param_refusals(client, run_id, batch.params, params)]
        batch.refused += [f"tags: the server refuses {key!r}: {words}" for key, words in tags.items()]
        batch.params = {key: value for key, value in batch.params.items() if key not in params}
        batch.tags = {key: value for key, value in batch.tags.items() if key not in tags}
        return [f"params {key}" for key in params] + [f"tags {key}" for key in tags]
    return []


def _send(
    client: PatientClient,
    run_id: str,
    metrics: list[Metric],
    params: Mapping[str, str] | None = None,
    tags: Mapping[str, str] | None = None,
) -> None:
    from mlflow.entities import Param, RunTag

    param_list = [Param(*param) for param in (params or {}).items()]
    tag_list = [RunTag(*tag) for tag in (tags or {}).items()]
    client.ask(lambda mlflow: mlflow.log_batch(run_id, metrics, param_list, tag_list))  # MLflow ignores what it has.


def _send_in_halves(client: PatientClient, run_id: str, texts: Mapping[str, str], kind: str) -> dict[str, str]:
    """Send params or tags in ever smaller parts; return those that are refused alone, with the server's message."""
    if not texts:
        return {}
    try:
        _send(client, run_id, [], **{kind: texts})
    except TrackingRefused as error:
        if len(texts) == 1:
            return dict.fromkeys(texts, shortened(str(error), MAX_MESSAGE_CHARS))
    else:
        return {}
    items = list(texts.items())
    halves = dict(items[: len(items) // 2]), dict(items[len(items) // 2 :])
    return _send_in_halves(client, run_id, halves[0], kind) | _send_in_halves(client, run_id, halves[1], kind)


def _param_refusals(
    client: PatientClient, run_id: str, values: Mapping[str, str], refused: Mapping[str, str]
) -> list[str]:
    """The messages on params that the server refuses; each says so if somebody else has set another value."""
    if not refused:
        return []
    with client.request() as mlflow:
        stored = mlflow.get_run(run_id).data.params
    return [
        f"{key!r} is {values[key]!r}, and somebody else has set it to {stored[key]!r} on the server"
        if key in stored
        else f"the server refuses {key!r}: {words}"
        for key, words in refused.items()
    ]
