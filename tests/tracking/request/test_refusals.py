"""A request that cannot be run is refused before anything trains: exit code 2, and words that say what to do."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest
from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from conf.schema import ConfigError
from tests.support.commands import TINY, Launched, launch
from tests.support.composing import composed
from tests.support.in_process import answer
from tracking.record import run_folder
from tracking.request import checks, refusal
from tracking.request.command_line.arguments import hydra_arguments

REFUSED = {
    "modle=vgg": ["modle", "Did you mean model"],
    "model=vg": ["model=vg", "did you mean vgg?", "Allowed: gnmt, gpt, llama, maskrcnn, minigo, ncf, program"],
    "-m study=scaling": ["study: needs a plus", "-m +study=NAME"],
    "+max_epoch=1": ["max_epoch: no such option. Did you mean max_epochs"],
    "++tracking.url=sqlite:///a.db": ["tracking.url: no such option", "tracking.uri"],
    "seed=1,2": ["seed=1,2: has several values. Next: -m seed=1,2 for a sweep."],
    "gpus": ["gpus: not an option. Allowed: NAME=VALUE"],
    "train.py": ["Allowed: NAME=VALUE", "python launch.py model=program 'program.command=python train.py'"],
    "python train.py": ["launch.py model=program 'program.command=python ...'", "import TimeTrial (Lightning)"],
    "--config-dir nowhere": ["--config-dir", "nowhere: no such folder"],
    "recipe=bla": ["recipe=bla: no such choice", "Allowed: none, gnmt_cpu"],
    "recipe=resnet50_cpu dry_run=true": [
        "recipe=resnet50_cpu",
        "belongs to model=resnet50, not to model=vgg. Allowed: none.",
        "model=resnet50 recipe=resnet50_cpu",
    ],
    "recipe=[ncf_cpu] model=ssd dry_run=true": [
        "recipe=ncf_cpu",
        "not to model=ssd. Allowed: none, ssd_cpu, ssd_shapes",
    ],
    "-m model=resnet50,vgg recipe=resnet50_cpu max_epochs=1 limit_train_batches=1": [
        "recipe=resnet50_cpu",
        "not to model=vgg",
    ],
    "closed=mlperf_v07_ssd dry_run=true": [
        "closed=mlperf_v07_ssd: belongs to model=ssd, not to model=vgg. Allowed: none.",
        "model=ssd closed=mlperf_v07_ssd",
    ],
    "-m closed=none,mlperf": ["closed=mlperf: no such choice", "mlperf_v07_ssd"],
    "stack.env.OMP_NUM_THREADS=1": ["needs a plus. Next: +stack.env.OMP_NUM_THREADS=VALUE"],
    "model.optimizer.lrr=1": ["model.optimizer.lrr", "model.optimizer.lr"],
    "target=<=3.0": ["without quotes. Next: 'target=\"<=3.0\"'"],
    "tracking.experiment=Prüfung": ["without quotes. Next: 'tracking.experiment=\"Prüfung\"'"],
    "tracking.experiment=a#b": ["without quotes. Next: 'tracking.experiment=\"a#b\"'"],
    "dataset.path=/d/a;b": ["without quotes. Next: 'dataset.path=\"/d/a;b\"'"],
    "program.cwd=/d/(x)": ["without quotes. Next: 'program.cwd=\"/d/(x)\"'"],
    "-m target=<=3.0,<=2.5": ['without quotes. Next: \'target="<=3.0","<=2.5"\''],
    "+program.metrics.eval/a=(x)": ["without quotes. Next: '+program.metrics={eval/a: \"(x)\"}'"],
    "seed=abc": ["seed=abc", "Allowed: a whole number"],
    "seed=-1": ["seed=-1", "Allowed: 0 to 4294967295"],
    "gpus=8": ["gpus=8", "visible on this machine", "Allowed: auto"],
    "gpus=-1": ["gpus=-1", "Allowed: auto"],
    "gpus=0 precision=fp16": ["precision=fp16", "fp32 or bf16"],
    "gpus=0 precision=tf32": ["precision=tf32", "fp32 or bf16"],
    "gpus=0 precision=tf32 precision.needs_gpu=false": ["precision=tf32: needs a GPU"],
    "precision.name=bf16": ["precision.name=bf16: ", "run in fp32", "trainer=32-true", "give precision=fp32 alone"],
    "precision.tf32=true": ["precision.name=fp32: ", "run in tf32", "precision.tf32=true", "give precision=tf32 alone"],
    "precision=bf16 precision.trainer=32": ["precision.trainer=32: is unknown. Allowed: 32-true, bf16-mixed"],
    "precision=fp16 precision.trainer=bf16-mixed": ["precision.name=fp16: ", "run in bf16"],
    "gpus.a=1": ["gpus.a: gpus is a single option. Next: give gpus=VALUE"],
    "model.optimizer=0.1": ["model.optimizer: holds several options. Allowed: model.optimizer.lr, "],
    "nodes=2": ["nodes=2", "rendezvous=HOST:PORT", "node_rank"],
    "nodes=0": ["nodes=0", "above 0"],
    "node_rank=1": ["node_rank=1", "nodes=1", "0 to 0"],
    "rendezvous=host:29500": ["rendezvous=host:29500", "nodes=2"],
    "nodes=2 rendezvous=host": ["rendezvous=host", "HOST:PORT", "1024"],
    "cpu_processes=0": ["cpu_processes=0", "above 0"],
    "target=nan": ["target=nan", "finite"],
    "batch_size=0": ["batch_size=0", "above 0"],
    "batch_size=100000000": ["batch_size=100000000", "training set of dataset=digits", "give up to batch_size=1"],
    "model=ncf batch_size=1001 dry_run=true": ["batch_size=1001", "group_size=5", "such as batch_size=1000"],
    "-m model=vgg,ncf batch_size=4": ["batch_size=4", "such as batch_size=5"],
    "model.group_size=0": ["model.group_size=0", "above 0"],
    "target=1.5": ["target=1.5", "accuracy: 0 to 1"],
    "dataset=fashion_mnist": ["dataset.path", "train-images-idx3-ubyte"],
    "+stack.expect.torch=9.9": ["stack=native", "torch", "9.9", "stack.expect"],
    "+stack.expect.pytorch=2": ["stack.expect", "pytorch", "torch"],
    "model.optimizer.lr_scaling=linear": ["base_batch_size", "both or neither"],
    "model.optimizer.lr_scaling=cubic": ["cubic", "none, linear, sqrt"],
    "tracking.uri=/tmp/mlruns": ["tracking.uri=/tmp/mlruns", "sqlite:///"],
    "stack.kind=magic": ["stack.kind=magic", "native"],
    "runs_dir=/proc/runs": ["runs_dir=/proc/runs", "write to"],
    "runs_dir=/proc/runs dry_run=true": ["runs_dir=/proc/runs: nothing can be made in /proc", "write to"],
    "sweep.resume=nothing": ["sweep.resume=nothing", "no such sweep"],
    "-m seed=1,2 profile=true profile.seed=7 dry_run=true": [
        "profile.seed=7: no job has this seed",
        "give one of 1, 2",
    ],
    "-m batch_size=4,8 sweep.paired=true dry_run=true": [
        "sweep.paired=true",
        "two seeds",
        "seed=1. Next: give seed=1,2,3",
    ],
    "resume=nothing": ["resume=nothing", "not a run's folder"],
    "resume=": ["resume=: is empty", "leave resume out"],
    f"runs_dir={'x' * 300} dry_run=true": ["runs_dir=xxx", "File name too long", "that you can write to"],
    f"runs_dir={'/'.join(['x' * 200] * 19)} dry_run=true": ["of up to 3,696 that leave room for runs in it"],
    "runs_dir=/etc/passwd/runs dry_run=true": ["runs_dir=/etc/passwd/runs: /etc/passwd is not a folder"],
    "dataset.path=": ["dataset.path=: is empty", "give a folder"],
    "data_dir= model=gpt dataset=text": ["data_dir=: is empty"],
    "dataset.tokenizer= model=gpt dataset=text": ["dataset.tokenizer=: is empty. Next: give a tokenizer"],
    "sweep.resume=": ["sweep.resume=: is empty", "leave sweep.resume out"],
    "tracking.uri=sqlite:////tmp": ["tracking.uri=sqlite:////tmp", "/tmp is a folder", "sqlite:////tmp/mlflow.db"],
    "model.name=a/b": ["model.name=a/b", "letters, digits"],
    f"model.name={'x' * 60}": ["model.name=xxx", "1 to 40"],
    f"tracking.experiment={'x' * 600}": ["tracking.experiment=", "has 600 characters", "up to 500"],
    "dataset.max_image_pixels=0": ["dataset.max_image_pixels=0", "above 0"],
    "save_model=last": ["save_model=last", "none, final, best"],
    "register_model=digits": ["register_model=digits", "log_model=true"],
    "model=gnmt log_model=true dry_run=true": ["model=gnmt cannot be exported", "save_model=final"],
    "-m model=vgg,transformer log_model=true": ["model=transformer cannot be exported"],
    "log_model=true register_model=digits/vgg": ["register_model=digits/vgg", "letters, digits"],
    "tracking.upload_model=true": ["has no effect with save_model=none", "save_model=final"],
    "checkpoint_every_epochs=0": ["checkpoint_every_epochs=0", "above 0"],
    "-m seed=1,1 dry_run=true": ["twice in this sweep", "other seeds"],
    "model=resnet50 dataset=imagenet": ["imagenet: dataset=imagenet reads", "data_dir=FOLDER"],
    "model=gpt recipe=gpt_cpu dataset=text": [
        "dataset.train_tokens=819200: dataset=text takes",
        "dataset.branches=null",
    ],
    "-m seed=range(3,1)": ["seed=range(3,1): no values", "list them"],
    "-m seed=glob(*) precision=fp32,bf16": ["seed=glob(*): no values"],
    "-m seed=interval(1,3)": ["interval(...)", "add +search=quickest"],
    "tracking.uri=http://me:secret@localhost": ["tracking.uri", "MLFLOW_TRACKING_PASSWORD"],
    "tracking.upload_wait_sec=-1": ["tracking.upload_wait_sec=-1", "0 or more"],
    "model.workload=nothing": ["model.workload=nothing", "package.module:NAME"],
    "model.workload=nothing:WORKLOAD dry_run=true": [
        "model.workload=nothing:WORKLOAD",
        "module nothing does not exist",
        "PYTHONPATH",
    ],
    "model.workload=trainers.models.vg:WORKLOAD": ["module trainers.models.vg does not exist", "package.module:NAME"],
    "-m seed=1,2 model.workload=trainers.models.vgg:WORKLAOD": ["trainers.models.vgg has no WORKLAOD"],
}
# Found in the worker, before it trains: by the dataset itself, and by the fingerprint.
IN_THE_WORKER = {
    "dataset=fashion_mnist", "batch_size=100000000", "+stack.expect.torch=9.9", "+stack.expect.pytorch=2",
}  # fmt: skip
# What composing and checking a job would not refuse: words of sweeps, folders and recipes; and some others.
LAUNCHED = IN_THE_WORKER | {words for words in REFUSED if words.startswith("-")} | {
    "modle=vgg", "gpus", "gpus=8", "recipe=bla", "recipe=resnet50_cpu dry_run=true", "runs_dir=/proc/runs",
    "runs_dir=/proc/runs dry_run=true", "sweep.resume=nothing", "resume=nothing", "model=resnet50 dataset=imagenet",
    "model=gpt recipe=gpt_cpu dataset=text", "model.workload=nothing:WORKLOAD dry_run=true",
}  # fmt: skip
# Further values of options that others stand for.
FURTHER = {
    "++tracking.url=sqlite:///a.db", "python train.py", "recipe=[ncf_cpu] model=ssd dry_run=true",
    "-m model=resnet50,vgg recipe=resnet50_cpu max_epochs=1 limit_train_batches=1",
    "closed=mlperf_v07_ssd dry_run=true", "-m closed=none,mlperf", "tracking.experiment=Prüfung",
    "dataset.path=/d/a;b", "program.cwd=/d/(x)", "gpus=-1", "gpus=0 precision=tf32", "nodes=0",
    "cpu_processes=0", "model.group_size=0", "dataset.max_image_pixels=0", "checkpoint_every_epochs=0",
    "sweep.resume=", "-m model=vgg,transformer log_model=true", "model.workload=trainers.models.vg:WORKLOAD",
    "-m model=vgg,ncf batch_size=4", "+stack.expect.pytorch=2", "tracking.experiment=a#b",
    "-m target=<=3.0,<=2.5", "+program.metrics.eval/a=(x)", "model.optimizer.lrr=1", "rendezvous=host:29500",
    "target=nan", "batch_size=0", "model.optimizer.lr_scaling=cubic", "resume=", f"model.name={'x' * 60}",
    f"tracking.experiment={'x' * 600}", "log_model=true register_model=digits/vgg", "tracking.upload_wait_sec=-1",
    "stack.kind=magic", "model.workload=nothing", "tracking.uri=sqlite:////tmp",
}  # fmt: skip


def check(asked: list[str]) -> None:
    words = hydra_arguments(asked)
    checks.check_job(refusal.declared(composed(words)), words, [], [])


@pytest.mark.parametrize("request_", [words for words in REFUSED if words not in LAUNCHED | FURTHER])
def test_a_job_is_refused_with_words_that_help(request_: str) -> None:
    with pytest.raises((ConfigError, HydraException, OmegaConfBaseException)) as refused:
        check(request_.split())
    text = " ".join(refusal.explain(refused.value).split())
    for expected in REFUSED[request_]:
        assert expected in text


@pytest.mark.parametrize("target", ["nowhere/deep", "runs"], ids=["missing", "itself"])
def test_a_link_to_no_folder_is_no_place_for_runs(tmp_path: Path, target: str) -> None:
    """Its disk may not be mounted. A link to itself ended in a traceback."""
    link = tmp_path / "runs"
    link.symlink_to(tmp_path / target)
    for runs_dir in (link, link / "mine"):
        with pytest.raises(ConfigError, match=f"{link} is a link to {tmp_path / target}, which is missing. Next: "):
            check([f"runs_dir={runs_dir}"])


@pytest.mark.slow
def test_a_dry_run_on_a_full_disk_is_refused_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_folder, "RESERVE_BYTES", 1 << 60)
    refused = answer(tmp_path, "gpus=0", "dataset=digits", "runs_dir=my/runs", "tracking.offline=true", "dry_run=true")
    assert refused.code == 2
    assert f"refused: runs_dir=my/runs: nothing can be made in {tmp_path} (" in " ".join(refused.output.split())
    assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def refusals(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Launched]:
    """The answers to the requests whose tests were selected."""

    def ask(words: str) -> tuple[str, Launched]:
        # A GPU of this machine must not turn a refusal into a run.
        return words, launch(tmp_path_factory.mktemp("refused"), *words.split(), CUDA_VISIBLE_DEVICES="")

    tmp_path_factory.getbasetemp()  # Made at the first use, which two threads would do at once.
    items = [item for item in request.session.items if item.path == request.path]
    calls = [item.callspec for item in items if isinstance(item, pytest.Function) and "refusals" in item.fixturenames]
    with ThreadPoolExecutor(2) as pool:
        return dict(pool.map(ask, [call.params["request_"] for call in calls]))


@pytest.mark.slow
@pytest.mark.parametrize(
    "request_",
    [pytest.param(words, marks=[pytest.mark.exhaustive] * (words in FURTHER)) for words in sorted(LAUNCHED | FURTHER)],
)
def test_a_launch_is_refused_with_words_that_help(refusals: dict[str, Launched], request_: str) -> None:
    answer = refusals[request_]
    assert answer.code == 2, answer.output
    assert "Traceback" not in answer.output
    text = " ".join(answer.output.split())
    for words in REFUSED[request_]:
        assert words in text
    if request_ in IN_THE_WORKER:
        assert answer.result["failure"]["kind"] == "bad_input"
    else:
        assert not list(answer.cwd.iterdir()), "nothing may be left behind"


@pytest.mark.slow
def test_a_recipe_of_ones_own_that_is_named_after_no_model_trains_any(tmp_path: Path) -> None:
    own = tmp_path / "own/recipe"
    own.mkdir(parents=True)
    for name in ("small", "ssdlike_cpu", "vgg_small", "ssd_small"):
        (own / f"{name}.yaml").write_text("# @package _global_\nbatch_size: 16\n", encoding="utf-8")
    asked = ("--config-dir", str(own.parent), "dry_run=true", "gpus=0", "tracking.offline=true")
    for recipe in ("recipe=ssdlike_cpu", "recipe=[small,vgg_small]"):
        answer = launch(tmp_path, *asked, recipe)
        assert answer.code == 0, answer.output
    answer = launch(tmp_path, *asked, "recipe=ssd_small")
    assert answer.code == 2, answer.output
    assert "Allowed: none, small, ssdlike_cpu, vgg_small." in answer.output


class Refusing(BaseHTTPRequestHandler):
    """A tracking server that knows nobody."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(401)
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_POST

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@pytest.mark.slow
def test_refused_credentials_are_refused_at_the_start_unless_offline(tmp_path: Path) -> None:
    server = HTTPServer(("127.0.0.1", 0), Refusing)
    Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    uri = f"tracking.uri=http://127.0.0.1:{server.server_port}"
    try:
        answer = launch(tmp_path, *TINY, uri)
        assert answer.code == 2, answer.output
        assert "tracking.offline=true" in answer.output
        assert not answer.folders
        offline = launch(tmp_path, *TINY, uri, "tracking.offline=true", "max_epochs=1")
        assert offline.code == 0, offline.output
        assert "python -m tracking sync" in offline.output
    finally:
        server.shutdown()
        server.server_close()
