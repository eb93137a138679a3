"""`@transform`: a plain function becomes a compiled op."""

import functools
import inspect
import types
from collections.abc import Callable, Mapping
from typing import Any, overload

import numpy as np

from loaderx.errors import ArgumentError
from loaderx.kernels.numba_internals import returns_value
from loaderx.spec import Spec

from .base import Parameter
from .mistakes import check_draws, check_function, check_parameters
from .pickling import portable, reduced
from .sample import SampleTransform

OutputRule = Callable[..., Any]


class TransformFactory:
    """Factory of ops, made by `@transform`: called with parameters it gives an op; `.py` is the function."""

    def __init__(self, function: Callable[..., None], out: OutputRule | None) -> None:
        if out is not None and not callable(out):
            raise ArgumentError(
                f"`out` (={out!r}) must be a function from the input spec and the parameters to the output spec."
            )
        _check_kind(function)
        functools.update_wrapper(self, function)
        self.py = function
        self.out = out
        signature = inspect.signature(function)
        names = list(signature.parameters)
        wanted = ["x", "out"] if out is not None else ["x"]
        rest = names[len(wanted) :]
        # Only with rng after it: alone it is a parameter.
        self.takes_length = rest[:2] == ["length", "rng"]
        rest = rest[1:] if self.takes_length else rest
        self.takes_rng = rest[:1] == ["rng"]
        rest = rest[1:] if self.takes_rng else rest
        if out is None and "out" in names:
            raise ArgumentError(
                f"transform {function.__name__!r} has an argument `out`: declare it by `@transform(out=...)`, a "
                "function from the input spec and the parameters to the output spec."
            )
        if names[: len(wanted)] != wanted or "rng" in rest:
            raise ArgumentError(
                f"transform {function.__name__!r} must accept `({', '.join(wanted)}, rng, ...)`, where rng may be "
                f"left out, or `({', '.join(wanted)}, length, rng, ...)`, not `({', '.join(names)})`."
            )
        several = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        if any(parameter.kind in several for parameter in signature.parameters.values()):
            raise ArgumentError(
                f"transform {function.__name__!r} must name its parameters one by one, not `{signature}`."
            )
        plain = _python_function(function)
        if (
            inspect.isgeneratorfunction(plain)
            or inspect.iscoroutinefunction(plain)
            or returns_value(plain)
        ):
            raise ArgumentError(
                f"transform {function.__name__!r} returns or yields something, which would be lost: it must change "
                "`x` in place, or accept `(x, out, ...)` and fill `out`."
            )
        check_function(plain, wanted)
        self._parameters = signature.replace(
            parameters=[
                signature.parameters[name].replace(kind=inspect.Parameter.KEYWORD_ONLY)
                for name in rest
            ],
            return_annotation=inspect.Signature.empty,
        )

    def __repr__(self) -> str:
        return f"{self.py.__name__}{inspect.signature(self.py)}"

    def __deepcopy__(self, memo: dict[int, Any]) -> "TransformFactory":
        return self  # as a function does

    def __copy__(self) -> "TransformFactory":
        return self

    def __reduce_ex__(self, protocol: Any) -> Any:
        return reduced(self, protocol)

    @functools.cached_property
    def portable(self) -> Any:
        """Return the function in a form that can be pickled."""
        return portable(self.py, self.out)  # type: ignore[arg-type]

    def __call__(self, *values: Any, **parameters: Any) -> "AuthoredTransform":
        if values:
            raise ArgumentError(
                f"transform {self.py.__name__!r} accepts its parameters by keyword: {self._parameters}. To call it on "
                "a sample, use `.py`."
            )
        try:
            bound = self._parameters.bind(**parameters)
        except TypeError as error:
            raise ArgumentError(
                f"transform {self.py.__name__!r} accepts the parameters {self._parameters}: {error}"
            ) from None
        bound.apply_defaults()
        return AuthoredTransform(
            self, {name: as_parameter(name, value) for name, value in bound.arguments.items()}
        )


class AuthoredTransform(SampleTransform):
    """Op made of a user's function and its parameters."""

    checked = True

    def __init__(self, author: TransformFactory, parameters: Mapping[str, Parameter]) -> None:
        # Checked a second time: functions that it calls may have been defined after it.
        check_draws(_python_function(author.py))
        arrays = [name for name, value in parameters.items() if isinstance(value, np.ndarray)]
        check_parameters(_python_function(author.py), arrays)
        self._author = author
        self._parameters = dict(parameters)
        self.function = author.py
        self.in_place = author.out is None
        self.takes_rng = author.takes_rng
        self.takes_length = author.takes_length

    def __reduce__(self) -> tuple[Any, ...]:
        return AuthoredTransform, (self._author, self._parameters)

    @property
    def name(self) -> str:
        return self._author.py.__name__

    def output(self, spec: Spec) -> Spec:
        self._check_dtype(spec)
        if self._author.out is None:
            return spec
        try:
            inspect.signature(self._author.out).bind(spec, **self._parameters)
        except TypeError as error:
            raise ArgumentError(
                f"`out` of transform {self.name!r} is called with the input spec and the parameters "
                f"({', '.join(self._parameters)}): {error}."
            ) from None
        answer = self._author.out(spec, **self._parameters)
        if not isinstance(answer, Spec):
            raise ArgumentError(
                f"`out` of transform {self.name!r} must return a Spec, not {answer!r}."
            )
        self._check_dtype(answer)
        return answer

    def _check_dtype(self, spec: Spec) -> None:
        if spec.dtype.kind not in "biufc" or spec.dtype == np.float16:
            raise ArgumentError(
                f"transform {self.name!r}: compiled code does not calculate with {spec}. Put half precision last, "
                "by Normalize or ToFloat."
            )

    def parameters(self, spec: Spec) -> Mapping[str, Parameter]:
        # A Python float adopts the precision of the array it meets, as in NumPy. As float64 it would turn every
        # operation on float32 samples into one of float64, and natural loops would be four times slower.
        if spec.dtype != np.float32:
            return self._parameters
        return {
            name: np.float32(value) if isinstance(value, float) else value
            for name, value in self._parameters.items()
        }

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self._parameters.items())
        return f"{self.name}({given})"


@overload
def transform(function: Callable[..., None], /) -> TransformFactory: ...
@overload
def transform(
    *, out: OutputRule | None = None
) -> Callable[[Callable[..., None]], TransformFactory]: ...
def transform(function: Any = None, /, *, out: OutputRule | None = None) -> Any:
    """Compile a function of one sample into the pipeline.

    `f(x, rng, ...)` changes the array x in place. `f(x, out, rng, ...)` fills `out`, whose spec is given by
    `@transform(out=lambda spec, **parameters: ...)`. `rng` may be left out; it has the methods of NumPy's Generator.
    In an entry with a field of lengths, `f(x, length, rng, ...)` gets how many entries of x along its first axis are
    data. The other parameters are numbers, booleans or arrays, given by keyword, and are not compiled in.
    """
    if function is None:
        return lambda function: TransformFactory(function, out)
    return TransformFactory(function, None)


def _python_function(function: Any) -> types.FunctionType:
    """Return the function that `numba.njit` was given, or the function itself."""
    plain: types.FunctionType = getattr(function, "py_func", function)
    return plain


def _check_kind(function: Any) -> None:
    """Refuse objects that are not functions written with `def`."""
    hint = None
    if isinstance(function, TransformFactory):
        hint = "It is a transform already."
    elif isinstance(function, functools.partial):
        hint = "Decorate the function inside, and give its arguments as parameters: `f(amount=2)`."
    elif inspect.ismethod(function):
        hint = "Write a function, and make what it reads of `self` parameters of it."
    elif not isinstance(_python_function(function), types.FunctionType):
        hint = (
            "Only code in Python can be compiled; call it inside of a function, if Numba knows it."
        )
    elif function.__name__ == "<lambda>":
        hint = "A lambda only gives a value, and cannot change `x`."
    if hint is not None:
        raise ArgumentError(
            f"`@transform` compiles functions that are written with `def`, not {function!r}. {hint}"
        )


def as_parameter(name: str, value: Any) -> Parameter:
    """Convert a value to one of the few types that code is compiled for."""
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, int | np.integer):
        if not -(1 << 63) <= value < 1 << 64:
            raise ArgumentError(
                f"parameter `{name}` (={value!r}) must be from -2**63 to 2**64 - 1: compiled code has 64 bits."
            )
        return int(value)
    if isinstance(value, float | np.floating):
        return float(value)
    array = np.asarray(value)
    if array.dtype.kind not in "biufc":
        raise ArgumentError(
            f"parameter `{name}` (={value!r}) must be a number, a boolean or an array of these."
        )
    if array.ndim == 0:
        number: Parameter = array.item()
        return number
    # A copy: one flavour (contiguous, read-only, in the order of this machine) to compile for, and the user may change
    # the original. Compiled code has no half precision.
    dtype = np.float32 if array.dtype == np.float16 else array.dtype.newbyteorder("=")
    parameter: np.ndarray[Any, Any] = np.array(array, dtype, order="C")
    # Read-only: other samples would read what one sample writes there.
    parameter.flags.writeable = False
    return parameter
