"""Ops on sequences of tokens for training language models: MaskTokens, SpanCorruption, PadTo."""

from typing import Any

import numpy as np

from loaderx.errors import ArgumentError
from loaderx.kernels.compilation import jitable
from loaderx.spec import Spec

from .base import Parameter, Transform, between, finite, is_integer
from .sample import SampleTransform
from .values import check_numbers


@jitable
def is_special(token: Any, special: Any) -> Any:
    """Return whether a token is one of those that are never chosen."""
    for k in range(special.shape[0]):  # noqa: SIM110 - Numba has no generators inside of `any`
        if token == special[k]:
            return True
    return False


# Draws do not depend on the tokens, so that inputs and targets draw alike.
@jitable
def draw_token(rng: Any, mask: Any, vocabulary: Any, masked: Any, replaced: Any, kept: Any) -> Any:
    """Return the new token: the mask, a random one, -1 for itself but to be predicted, -2 for not chosen."""
    share = rng.random()
    if share < masked:
        return mask
    if share < replaced:
        return rng.integers(0, vocabulary)
    return -1 if share < kept else -2


def mask_inputs(
    x: Any,
    rng: Any,
    mask: Any,
    vocabulary: Any,
    masked: Any,
    replaced: Any,
    kept: Any,
    special: Any,
    ignore: Any,
) -> None:
    """Replace some tokens by the mask or a random one."""
    tokens = x.reshape(-1)
    for k in range(tokens.shape[0]):
        drawn = draw_token(rng, mask, vocabulary, masked, replaced, kept)
        if drawn >= 0 and not is_special(tokens[k], special):
            tokens[k] = drawn


def mask_targets(
    x: Any,
    rng: Any,
    mask: Any,
    vocabulary: Any,
    masked: Any,
    replaced: Any,
    kept: Any,
    special: Any,
    ignore: Any,
) -> None:
    """Replace all tokens that were not chosen by `ignore`."""
    tokens = x.reshape(-1)
    for k in range(tokens.shape[0]):
        drawn = draw_token(rng, mask, vocabulary, masked, replaced, kept)
        if drawn == -2 or is_special(tokens[k], special):
            tokens[k] = ignore


class MaskTokens(SampleTransform):
    """Masked tokens for BERT: each is chosen with `probability`, and of those chosen most become `mask`.

    A share `random` of them becomes a random token below `vocabulary`, a share `keep` stays unchanged. Tokens in
    `special` are never chosen. In the fields after the first of an entry, which begin as the same tokens, tokens that
    were not chosen become `ignore`, to be left out of the loss:

        {("inputs", "targets"): [MaskTokens(103, 30522, special=(0, 101, 102))]}
    """

    function = staticmethod(mask_inputs)
    in_place = True
    takes_rng = True

    def __init__(
        self,
        mask: int,
        vocabulary: int,
        probability: float = 0.15,
        *,
        keep: float = 0.1,
        random: float = 0.1,
        special: Any = (),
        ignore: int = -100,
    ) -> None:
        self._mask = _token("mask", mask)
        if not is_integer(vocabulary, 1):
            raise ArgumentError(f"`vocabulary` (={vocabulary!r}) must be an integer of at least 1.")
        self._vocabulary = int(vocabulary)
        probability = between("probability", probability, 0, 1)
        keep, random = between("keep", keep, 0, 1), between("random", random, 0, 1)
        if keep + random > 1:
            raise ArgumentError(
                f"`keep` (={keep}) and `random` (={random}) are shares of the chosen tokens and must not be more than "
                "1 together."
            )
        if not isinstance(special, list | tuple | np.ndarray):
            raise ArgumentError(f"`special` (={special!r}) must be a list of tokens.")
        if not is_integer(ignore, -(1 << 63)):
            raise ArgumentError(f"`ignore` (={ignore!r}) must be an integer.")
        self._ignore = int(ignore)
        self._parameters: dict[str, Parameter] = {
            "mask": self._mask,
            "vocabulary": self._vocabulary,
            # One number is drawn for a token: these are the borders between its meanings.
            "masked": probability * (1 - keep - random),
            "replaced": probability * (1 - keep),
            "kept": probability,
            "special": np.array([_token("special", token) for token in special], np.int64),
            "ignore": self._ignore,
        }

    def output(self, spec: Spec) -> Spec:
        _check_tokens(spec, self.name)
        _check_holds(spec, self.name, "mask", self._mask)
        _check_holds(spec, self.name, "vocabulary", self._vocabulary - 1)
        return spec

    def parameters(self, spec: Spec) -> dict[str, Parameter]:
        return self._parameters

    def for_labels(self) -> Transform:
        return _MaskedTargets(self._parameters, self._ignore)


class _MaskedTargets(SampleTransform):
    name = "MaskTokens"
    function = staticmethod(mask_targets)
    in_place = True
    takes_rng = True

    def __init__(self, parameters: dict[str, Parameter], ignore: int) -> None:
        self._parameters = parameters
        self._ignore = ignore

    def output(self, spec: Spec) -> Spec:
        _check_tokens(spec, self.name)
        _check_holds(spec, self.name, "ignore", self._ignore)
        return spec

    def parameters(self, spec: Spec) -> dict[str, Parameter]:
        return self._parameters


@jitable
def first_part(rng: Any, items: Any, parts: Any) -> Any:
    """Draw how many of `items` are in the first of `parts` random parts, none empty, all divisions as likely."""
    if parts == 1:
        return items
    size = 1
    # After each of the items - size places left there is a border with the same probability.
    while rng.random() * (items - size) >= parts - 1:
        size += 1
    return size


def corrupt_inputs(
    x: Any, out: Any, rng: Any, sentinel: Any, noise: Any, spans: Any, eos: Any
) -> None:
    """Write the tokens that are not noise, with a sentinel for each span of noise."""
    clean = x.shape[0] - noise
    read, place = 0, 0
    for span in range(spans):
        size = first_part(rng, clean, spans - span)
        for k in range(size):
            out[place + k] = x[read + k]
        clean -= size
        read += size
        place += size
        out[place] = sentinel - span
        place += 1
        size = first_part(rng, noise, spans - span)
        noise -= size
        read += size
    if place < out.shape[0]:
        out[place] = eos


def corrupt_targets(
    x: Any, out: Any, rng: Any, sentinel: Any, noise: Any, spans: Any, eos: Any
) -> None:
    """Write the spans of noise, each after its sentinel."""
    clean = x.shape[0] - noise
    read, place = 0, 0
    for span in range(spans):
        size = first_part(rng, clean, spans - span)
        clean -= size
        read += size
        out[place] = sentinel - span
        place += 1
        size = first_part(rng, noise, spans - span)
        for k in range(size):
            out[place + k] = x[read + k]
        noise -= size
        read += size
        place += size
    if place < out.shape[0]:
        out[place] = eos


class SpanCorruption(SampleTransform):
    """Span corruption of T5: random spans of tokens become one sentinel each, and the model predicts them.

    A share `density` of the tokens is in spans of `mean_span` tokens on average. The spans become `sentinel`,
    `sentinel` - 1 and so on, in T5 32099, 32098, ... In the fields after the first of an entry, which begin as the
    same tokens, come the targets: each sentinel with the tokens it replaces. With `eos` both end with this token.

        {("inputs", "targets"): [SpanCorruption(32099, eos=1)]}

    The number of tokens of the result follows from that of the input; see `lengths`. Put PadTo after it for more.
    """

    function = staticmethod(corrupt_inputs)
    in_place = False
    takes_rng = True

    def __init__(
        self,
        sentinel: int,
        *,
        density: float = 0.15,
        mean_span: float = 3.0,
        eos: int | None = None,
    ) -> None:
        self._sentinel = _token("sentinel", sentinel)
        self._density = between("density", density, 0, 1)
        self._mean_span = finite("mean_span", mean_span)
        if self._mean_span < 1:
            raise ArgumentError(f"`mean_span` (={mean_span!r}) must be at least 1.")
        self._eos = None if eos is None else _token("eos", eos)

    def lengths(self, tokens: int) -> tuple[int, int]:
        """Return how many inputs and how many targets `tokens` tokens become."""
        noise, spans = self._amounts(tokens)
        ends = spans + (self._eos is not None)
        return tokens - noise + ends, noise + ends

    def _amounts(self, tokens: int) -> tuple[int, int]:
        """Return tokens in spans of noise, and spans: as in T5 always the same for the same number of tokens."""
        noise = min(max(round(tokens * self._density), 1), tokens - 1)
        spans = max(round(noise / self._mean_span), 1)
        # Between two spans is at least one token.
        return noise, min(spans, tokens - noise)

    def output(self, spec: Spec) -> Spec:
        _check_tokens(spec, self.name)
        if len(spec.shape) != 1 or spec.size < 2:
            raise ArgumentError(
                f"{self.name} accepts tokens along one axis, at least two, not {spec}."
            )
        _check_holds(spec, self.name, "sentinel", self._sentinel)
        _check_holds(spec, self.name, "eos", self._eos or 0)
        _, spans = self._amounts(spec.size)
        if self._sentinel < spans - 1:
            raise ArgumentError(
                f"{self.name}: {spec.size} tokens have {spans} spans, and there are fewer tokens from "
                f"`sentinel` (={self._sentinel}) down to 0. Give a larger `sentinel`."
            )
        return Spec((self._length(spec),), spec.dtype)

    def _length(self, spec: Spec) -> int:
        return self.lengths(spec.size)[0]

    def parameters(self, spec: Spec) -> dict[str, Parameter]:
        noise, spans = self._amounts(spec.size)
        return {
            "sentinel": self._sentinel,
            "noise": noise,
            "spans": spans,
            "eos": self._eos or 0,
        }

    def for_labels(self) -> Transform:
        return _CorruptedTargets(
            self._sentinel, density=self._density, mean_span=self._mean_span, eos=self._eos
        )


class _CorruptedTargets(SpanCorruption):
    name = "SpanCorruption"
    function = staticmethod(corrupt_targets)

    def _length(self, spec: Spec) -> int:
        return self.lengths(spec.size)[1]


def pad_end(x: Any, out: Any, value: Any) -> None:
    """Copy as much of a sample as there is room for, and write `value` after it."""
    source, target = x.reshape(-1), out.reshape(-1)
    size = min(source.shape[0], target.shape[0])
    for k in range(size):
        target[k] = source[k]
    for k in range(size, target.shape[0]):
        target[k] = value


class PadTo(SampleTransform):
    """Padding or cutting to `length` entries along the first axis, at the end; shorter samples end with `value`."""

    function = staticmethod(pad_end)
    in_place = False
    takes_rng = False

    def __init__(self, length: int, value: float = 0) -> None:
        if not is_integer(length, 1):
            raise ArgumentError(f"`length` (={length!r}) must be an integer of at least 1.")
        self._length = int(length)
        self._value = value if is_integer(value, -(1 << 63)) else finite("value", value)

    def output(self, spec: Spec) -> Spec:
        check_numbers(spec, self.name)
        if not spec.shape:
            raise ArgumentError(f"{self.name} accepts samples of at least one axis, not {spec}.")
        if spec.dtype.kind != "f":
            if self._value != int(self._value):
                raise ArgumentError(
                    f"{self.name}: `value` (={self._value}) must be a value of {spec.dtype}."
                )
            _check_holds(spec, self.name, "value", int(self._value))
        return Spec((self._length, *spec.shape[1:]), spec.dtype)

    def parameters(self, spec: Spec) -> dict[str, Parameter]:
        return {"value": float(self._value) if spec.dtype.kind == "f" else int(self._value)}


def _token(name: str, value: Any) -> int:
    if isinstance(value, bool) or not is_integer(value, 0):
        raise ArgumentError(f"`{name}` (={value!r}) must be a token: an integer of at least 0.")
    return int(value)


def _check_tokens(spec: Spec, name: str) -> None:
    if spec.dtype.kind not in "iu" or spec.size == 0:
        raise ArgumentError(f"{name} accepts tokens, which are integers, not {spec}.")


def _check_holds(spec: Spec, name: str, argument: str, value: int) -> None:
    limits = (0, 1) if spec.dtype.kind == "b" else _limits(spec)
    if not limits[0] <= value <= limits[1]:
        raise ArgumentError(
            f'{name}: {spec} cannot hold {value}, which `{argument}` needs; put Cast("int32") before it.'
        )


def _limits(spec: Spec) -> tuple[int, int]:
    found = np.iinfo(spec.dtype)
    return int(found.min), int(found.max)
