"""Codes that a program brings along, as classes."""

from typing import Any, ClassVar

import torch

from bluefog_cpp import _arguments
from bluefog_cpp._extension import core
from bluefog_cpp.errors import InvalidArgument
from bluefog_cpp.torch._own.classes import check_class, is_same

_codes: dict[str, "Compression"] = {}
_TRIED_COUNTS = (1, 7, 1000)


class Compression:
    """A lossy code C of vectors of float32, whose bytes travel in the vectors' place.

        @bf.register_compression
        class Half(bf.Compression):
            name = "half"
            ...

    The same input gives the same bytes on every run and rank, C(0) = 0, and what is not finite is
    no finite number afterwards. Methods get copies, and run with the interpreter's lock, one at a
    time. An object, or the name of a class that is registered, is what `compression` of
    `DecentralizedOptimizer` takes, for algorithms that send codes (`choco`, `sparse_loco`, …).
    """

    name: ClassVar[str] = ""
    """For options and messages. Codes of one name are the same code: ranks compare what they make
    of some vectors."""

    def bytes_of(self, count: int) -> int:
        """The length of the code of `count` values, in bytes, whatever the values are."""
        raise NotImplementedError(f"{type(self).__name__}: expected a method 'bytes_of'")

    def contraction(self, count: int) -> float:
        """δ with |x - C(x)|² ≤ (1 - δ) |x|² for all finite x of `count` values, from above 0 to 1.
        """
        raise NotImplementedError(f"{type(self).__name__}: expected a method 'contraction'")

    def encode(self, values: torch.Tensor) -> torch.Tensor:
        """The code of a float32[count]: a uint8[bytes_of(count)]."""
        raise NotImplementedError(f"{type(self).__name__}: expected a method 'encode'")

    def decode(self, code: torch.Tensor, count: int) -> torch.Tensor:
        """C(x), a float32[count], of what `encode` returned."""
        raise NotImplementedError(f"{type(self).__name__}: expected a method 'decode'")


def register_compression(compression: type[Compression]) -> type[Compression]:
    """Makes a class known by its `name`, as a decorator: `compression="half"`. On all ranks.
    Returns the class. A class of the same module and name takes the former one's place.

    Raises ArgumentTypeError for anything but a subclass of `Compression`, and InvalidArgument for a
    name that is none or taken, and for a code that does not keep what it promises for a few
    vectors: its length, C(0) = 0, its δ, the same bytes again, nothing finite of infinities.
    """
    call = "register_compression"
    check_class(call, "compression", compression, Compression, "encode")
    code = compression()
    name = _arguments.checked(call, "name", _arguments.dashed_name, code.name)
    former = _codes.get(name)
    is_other = former is not None and not is_same(type(former), compression)
    known = {word.partition(":")[0] for word in core.compression_names()}
    if is_other or name in known or name == "none":
        raise InvalidArgument(f"{_arguments.place(call)}: name: expected one that no code has, "
                              f"found '{name}'")
    check_code(call, code)
    _codes[name] = code
    return compression


def registered_compressions() -> list[str]:
    """The names of `register_compression`."""
    return list(_codes)


def compression_from(given: Any) -> core.Compression:
    """The meaning of the argument `compression`: a name or a code. Its errors name no argument."""
    if isinstance(given, Compression):
        name = _arguments.dashed_name(given.name)
        check_code("Compression", given)
        return core.python_compression(given, name)
    name = _arguments.text(given)
    if name in _codes:
        return core.python_compression(_codes[name], name)
    try:
        return core.compression_named(name)
    except InvalidArgument as error:
        own = f"; of this program {', '.join(_codes)}" if _codes else ""
        raise InvalidArgument(str(error).removeprefix("compression: ") + own) from None


def check_code(call: str, code: Compression) -> None:
    """Raises InvalidArgument for the first promise that the code does not keep."""
    for count in _TRIED_COUNTS:
        where = f"{_arguments.place(call)}: {code.name}, {count} values"
        ramp = torch.linspace(-1, 1, count).pow(3)
        for x in (torch.zeros(count), torch.full((count,), 3.0), ramp):
            decoded = _decoded(where, code, x)
            delta = code.contraction(count)
            if not 0 < delta <= 1:
                raise InvalidArgument(f"{where}: contraction: expected a number from above 0 to 1, "
                                      f"found {delta}")
            error, bound = (x - decoded).double().square().sum(), (1 - delta) * x.double().square(
                ).sum()
            if not error <= bound * (1 + 1e-6):
                raise InvalidArgument(
                    f"{where}: expected a squared error of at most (1 - {delta}) of the squared "
                    f"norm, {bound:.4g}, found {error:.4g} (contraction)")
        for bad in (torch.inf, torch.nan):
            decoded = _decoded(where, code, torch.cat([torch.ones(count - 1), torch.full((1,), bad)]
                                                      ))
            if decoded[-1].isfinite():
                raise InvalidArgument(f"{where}: expected no finite number of {bad}, found "
                                      f"{decoded[-1].item()}")


def _decoded(where: str, code: Compression, x: torch.Tensor) -> torch.Tensor:
    bytes_, count = code.bytes_of(len(x)), len(x)
    encoded = code.encode(x.clone())
    _check_tensor(f"{where}: encode", encoded, torch.uint8, bytes_)
    if not encoded.equal(code.encode(x.clone())):
        raise InvalidArgument(f"{where}: encode: expected the same bytes each time, found others")
    decoded = code.decode(encoded.clone(), count)
    _check_tensor(f"{where}: decode", decoded, torch.float32, count)
    return decoded


def _check_tensor(where: str, found: Any, dtype: torch.dtype, count: int) -> None:
    if not (isinstance(found, torch.Tensor) and found.dtype == dtype and found.shape == (count,)):
        shown = (f"{found.dtype}{list(found.shape)}" if isinstance(found, torch.Tensor)
                 else _arguments.described(found))
        raise InvalidArgument(f"{where}: expected {dtype}[{count}], found {shown}")
