"""The constructor of a workload's module, read from its source: importing it would import torch."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from importlib.machinery import ModuleSpec

MOST_STEPS = 12  # most steps from name to name: sources may import each other in a circle
Definition = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Parameter:
    """A parameter by keyword; `annotation` is None without one."""

    name: str
    annotation: ast.expr | None
    required: bool


@dataclass(frozen=True)
class Constructor:
    """The parameters of a class or function; `open` if it takes further keywords."""

    name: str
    parameters: tuple[Parameter, ...]
    open: bool


class Sources:
    """Finds names in the sources of modules, through their imports. None for what only importing can tell."""

    def __init__(self) -> None:
        self._steps = 0

    def constructor(self, module: str, name: str) -> Constructor | None:
        """The constructor of the `module` in `NAME = Workload(module=..., data=...)`."""
        where, expression = self._argument(module, name, "module", 0)
        return self._of_expression(where, expression)

    def dataset(self, module: str, name: str, dataset: str) -> Constructor | None:
        """The function of a dataset in the `data` of the same workload."""
        where, expression = self._argument(module, name, "data", 1)
        if isinstance(expression, ast.Name) and (binding := self._bound(where, expression.id)):
            where, expression = binding
        if not isinstance(expression, ast.Dict) or None in expression.keys:  # such as {**OTHERS}
            return None
        values = [
            value
            for key, value in zip(expression.keys, expression.values, strict=True)
            if isinstance(key, ast.Constant) and key.value == dataset
        ]
        return self._of_expression(where, values[-1]) if values else None

    def _argument(self, module: str, name: str, argument: str, place: int) -> tuple[str, ast.AST | None]:
        """Where a workload is made, and the expression of one of its arguments; None if that cannot be read."""
        binding = self._bound(module, name)
        if binding is None or not isinstance(call := binding[1], ast.Call):
            return module, None
        named = [keyword.value for keyword in call.keywords if keyword.arg == argument] or call.args[place : place + 1]
        return binding[0], named[0] if named else None

    def _of_expression(self, module: str, expression: ast.AST | None) -> Constructor | None:
        """The constructor of a class or function that an expression names: `Vgg` or `vgg.Vgg`."""
        if isinstance(expression, ast.Attribute) and isinstance(expression.value, ast.Name):
            binding = self._bound(module, expression.value.id)
            within = binding[0] if binding and binding[1] is None else None
            binding = self._bound(within, expression.attr) if within else None
        else:
            binding = self._bound(module, expression.id) if isinstance(expression, ast.Name) else None
        if binding is None:
            return None
        where, node = binding
        if isinstance(node, ast.FunctionDef) and not node.decorator_list:
            return _of(node.name, node, 0)
        if not isinstance(node, ast.ClassDef) or node.decorator_list or node.keywords:
            return None
        methods = {part.name: part for part in node.body if isinstance(part, Definition)}
        if "__new__" in methods:
            return None
        if isinstance(init := methods.get("__init__"), ast.FunctionDef) and not init.decorator_list:
            return _of(node.name, init, 1)
        inherited = self._of_expression(where, node.bases[0]) if len(node.bases) == 1 else None
        return inherited and Constructor(node.name, inherited.parameters, inherited.open)

    def _bound(self, module: str, name: str) -> tuple[str, ast.AST | None] | None:
        """Where a module's name is bound, and to what; (module, None) for a module."""
        self._steps += 1
        read = read_source(module) if self._steps <= MOST_STEPS else None
        if read is None:
            return None
        spec, tree = read
        bound = [binding for statement in tree.body for binding in _bindings(statement) if binding[0] in (name, "*")]
        if not bound:
            inner = f"{module}.{name}"
            return (inner, None) if spec.submodule_search_locations and read_source(inner) else None
        if len(bound) > 1 or bound[0][0] == "*":
            return None
        node = bound[0][1]
        if isinstance(node, ast.ImportFrom):
            [alias] = [alias for alias in node.names if (alias.asname or alias.name) == name]
            return self._bound(_imported(spec, node), alias.name)
        if isinstance(node, ast.Import):
            [alias] = [alias for alias in node.names if alias.asname == name or alias.name == name]
            return alias.name, None
        return module, node


def _bindings(statement: ast.stmt) -> Iterator[tuple[str, ast.AST]]:
    """The names that a statement of a module binds; "*" for a star import. Names in inner blocks have no value here."""
    if isinstance(statement, ast.Import | ast.ImportFrom):
        yield from ((alias.asname or alias.name, statement) for alias in statement.names)
    elif isinstance(statement, ast.ClassDef | Definition):
        yield statement.name, statement
    elif isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None:
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        yield from ((target.id, statement.value) for target in targets if isinstance(target, ast.Name))
    elif isinstance(statement, ast.If | ast.Try | ast.With | ast.For | ast.While):
        inner = [node for node in ast.walk(statement) if isinstance(node, ast.stmt) and node is not statement]
        yield from ((name, ast.Pass()) for node in inner for name, _ in _bindings(node))


def _imported(spec: ModuleSpec, statement: ast.ImportFrom) -> str:
    """The module of `from ... import`; dots begin at the package of the module that has the statement."""
    if not statement.level:
        return statement.module or ""
    package = spec.name.split(".")
    package = package if spec.submodule_search_locations else package[:-1]
    above = package[: len(package) - statement.level + 1]
    return ".".join([*above, *([statement.module] if statement.module else [])])


def _of(name: str, function: Definition, skipped: int) -> Constructor:
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    optional = {id(argument) for argument in positional[len(positional) - len(arguments.defaults) :]}
    optional |= {
        id(argument) for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if default
    }
    parameters = [
        Parameter(argument.arg, argument.annotation, id(argument) not in optional)
        for argument in [*positional[skipped:], *arguments.kwonlyargs]
    ]
    return Constructor(name, tuple(parameters), open=arguments.kwarg is not None)


def read_source(module: str) -> tuple[ModuleSpec, ast.Module] | None:
    """A module's spec and syntax, without importing its packages; None if it has no source that can be read."""
    spec: ModuleSpec | None = None
    try:
        for end in range(1, len(parts := module.split(".")) + 1):
            spec = spec_of(".".join(parts[:end]), spec)
            if spec is None or spec.loader is None:
                return None
        source = spec.loader.get_source(module) if spec and spec.loader else None  # type: ignore[attr-defined]
        return (spec, parsed(source)) if spec and source is not None else None
    except Exception:  # Anybody may add finders and loaders.
        return None


@lru_cache(maxsize=64)
def parsed(source: str) -> ast.Module:
    return ast.parse(source)


def spec_of(module: str, above: ModuleSpec | None) -> ModuleSpec | None:
    """The module's spec, without importing the package `above` it as `importlib.util.find_spec` does."""
    folders = above.submodule_search_locations if above else None
    if above and folders is None:
        return None
    specs = (finder.find_spec(module, folders) for finder in sys.meta_path)
    return next((spec for spec in specs if spec is not None), None)
