"""The files of an MLflow model, made from the worker's export, for mlflow.pytorch and mlflow.pyfunc."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from tracking.record import ExportedModel, exported_model, files

if TYPE_CHECKING:
    from mlflow.entities import LoggedModel
    from mlflow.types import Schema

DATA = "data"  # the folder in which mlflow.pytorch looks for the program
PROGRAM = f"{DATA}/model.pt2"  # MLflow's name for a program of torch.export
EXAMPLE, REQUIREMENTS, PYTHON_ENV, CONDA = "input_example.json", "requirements.txt", "python_env.yaml", "conda.yaml"
SERVING = "serving_input_example.json"  # the example as a request to `mlflow models serve`
MLMODEL = "MLmodel"  # uploaded last, since it turns a folder into a model
FILES = (PROGRAM, EXAMPLE, SERVING, REQUIREMENTS, PYTHON_ENV, CONDA, MLMODEL)


@contextmanager
def write_files(folder: Path, exported: ExportedModel, logged: LoggedModel) -> Iterator[dict[str, Path]]:
    """Write the model's files to a temporary folder. Yields their paths by path in the model. Raises OSError."""
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(TemporaryDirectory()))
        (scratch / DATA).mkdir()
        for name, source in ((PROGRAM, exported_model.PROGRAM), (EXAMPLE, exported_model.EXAMPLE)):
            (scratch / name).symlink_to(stack.enter_context(files.pinned(folder / source)))
        (scratch / SERVING).write_text(f'{{"inputs": {(scratch / EXAMPLE).read_text()}}}')
        _write_environment(scratch, exported)
        _write_mlmodel(scratch, exported, logged)
        yield {name: scratch / name for name in FILES}


def _write_environment(scratch: Path, exported: ExportedModel) -> None:
    """Write the requirements: the PyTorch that exported the program, and an MLflow that knows the format."""
    import mlflow
    import yaml

    # Without the build after the plus, which only PyTorch's own package index has.
    requirements = [f"mlflow=={mlflow.__version__}", "numpy", f"torch=={exported.torch.partition('+')[0]}"]
    (scratch / REQUIREMENTS).write_text("\n".join(requirements) + "\n")
    python_env = {"python": exported.python, "build_dependencies": ["pip"], "dependencies": [f"-r {REQUIREMENTS}"]}
    (scratch / PYTHON_ENV).write_text(yaml.safe_dump(python_env))
    packages = [f"python={exported.python}", "pip", {"pip": requirements}]
    conda = {"name": "mlflow-env", "channels": ["conda-forge"], "dependencies": packages}
    (scratch / CONDA).write_text(yaml.safe_dump(conda))


def _write_mlmodel(scratch: Path, exported: ExportedModel, logged: LoggedModel) -> None:
    from mlflow import pyfunc
    from mlflow.models import Model, ModelSignature

    example = {"artifact_path": EXAMPLE, "type": "ndarray", "format": "tf-serving", "serving_input_path": SERVING}
    model = Model(
        artifact_path=logged.artifact_location,
        run_id=logged.source_run_id,
        model_uuid=logged.model_id,
        model_id=logged.model_id,
        signature=ModelSignature(_schema(exported.inputs), _schema(exported.outputs)),
        saved_input_example_info=example,
        model_size_bytes=(scratch / PROGRAM).stat().st_size,
    )
    model.add_flavor("pytorch", model_data=DATA, pytorch_version=exported.torch, code=None)
    environments = {"conda_env": CONDA, "python_env": PYTHON_ENV}
    # The program was exported for a CPU; MLflow would look for a GPU.
    on_cpu = {"device": "cpu"}
    pyfunc.add_to_model(model, loader_module="mlflow.pytorch", data=DATA, model_config=on_cpu, **environments)
    model.save(str(scratch / MLMODEL))


def _schema(array: exported_model.Array) -> Schema:
    import numpy as np
    from mlflow.types import Schema, TensorSpec

    return Schema([TensorSpec(np.dtype(array.dtype), tuple(array.shape))])


def sizes(paths: dict[str, Path]) -> dict[str, int]:
    return {name: path.stat().st_size for name, path in paths.items()}
