"""The stub and the annotations say what there is."""

import ast
import inspect
import pathlib
import re

import pytest

import bluefog_cpp
import bluefog_cpp.torch as bf
from bluefog_cpp import ibfrun, pipeline, topology_util, util
from bluefog_cpp._extension import core
from bluefog_cpp.torch import ddp_comm_hooks, model_averaging

STUB = ast.parse(pathlib.Path(bluefog_cpp.__file__).with_name("_core.pyi").read_text())


def public_functions(module):
    """With methods and properties of public classes."""
    for name, value in vars(module).items():
        if name.startswith("_") or not getattr(value, "__module__", "").startswith("bluefog_cpp"):
            continue
        if inspect.isfunction(value):
            yield name, value
        elif inspect.isclass(value):
            for member, function in vars(value).items():
                function = getattr(function, "__func__", getattr(function, "fget", function))
                if inspect.isfunction(function) and (not member.startswith("_")
                                                     or member == "__init__"):
                    yield f"{name}.{member}", function


@pytest.mark.parametrize("module",
                         (bf, topology_util, util, ibfrun, pipeline, ddp_comm_hooks,
                          model_averaging),
                         ids=lambda module: module.__name__)
def test_public_functions_are_typed(module):
    found = list(public_functions(module))
    assert found
    for name, function in found:
        signature = inspect.signature(function)
        untyped = [parameter.name for parameter in signature.parameters.values()
                   if parameter.annotation is parameter.empty
                   and parameter.name not in ("self", "cls")]
        assert not untyped, f"{module.__name__}.{name}: {untyped}"
        if not name.endswith("__init__"):
            assert signature.return_annotation is not signature.empty, f"{module.__name__}.{name}"


def described(scope, members):
    """By name: the arguments of each function of the stub, or None for what is none."""
    names = {}
    for node in members:
        if isinstance(node, ast.FunctionDef):
            is_property = any(getattr(it, "id", "") == "property" for it in node.decorator_list)
            arguments = [it.arg for it in node.args.args if it.arg != "self"]
            names[scope + node.name] = None if is_property else arguments
        elif isinstance(node, ast.ClassDef):
            names[scope + node.name] = None
            names.update(described(f"{node.name}.", node.body))
        elif isinstance(node, (ast.AnnAssign, ast.Assign)):
            target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
            names[scope + target.id] = None
    return names


def built(scope, holder):
    """The same of the module, from the signatures that pybind11 writes."""
    names = {}
    for name, value in vars(holder).items():
        if name.startswith("_") and name != "__init__":
            continue
        value = getattr(value, "__func__", value)
        if inspect.isclass(value) or inspect.ismodule(value):
            names[scope + name] = None
            names.update(built(f"{name}.", value))
            continue
        # The implicit one of classes that are not made in Python takes anything.
        text = getattr(value, "__doc__", None) or ""
        signature = re.match(rf"{name}\((.*)\) -> ", text)
        if name == "__init__" and not signature:
            continue
        is_function = callable(value) and signature
        arguments = re.findall(r"(?:^|, )(\w+): ",
                               re.sub(r"\[.*?\]+", "", signature[1])) if is_function else []
        names[scope + name] = [it for it in arguments if it != "self"] if is_function else None
    return names


def test_the_stub_is_the_core():
    stub, module = described("", STUB.body), built("", core)
    for enum in ("Averaging", "RowSums", "Stochastic"):  # pybind11's own members
        module = {name: value for name, value in module.items()
                  if name not in (f"{enum}.name", f"{enum}.value", f"{enum}.__init__")}
    assert set(stub) == set(module)
    for name, arguments in module.items():
        if arguments is not None:
            assert stub[name] == [re.sub(r"^arg\d+$", "", it) or stub[name][place]
                                  for place, it in enumerate(arguments)], name
