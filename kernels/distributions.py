"""`rng` inside a compiled transform: the draws of one sample, with the names and argument order of NumPy's Generator.

The methods are plain functions of a stream of 64-bit words, so the same source serves three callers: compiled code,
where `rng` is a pointer to one word of state that the optimiser keeps in a register (a `structref` costs 20 s of
compilation, this costs nothing); plain Python in debug mode, where it is a `Draws`; and tests.
"""

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, config, types
from numba.extending import intrinsic, models, overload, overload_method, register_model

from .compilation import jitable
from .random import GOLDEN, as_uniform, mix_bits

LAYERS = 128
ZIGGURAT_END = 3.442619855899
ZIGGURAT_AREA = 9.91256303526217e-3
TINY = 1e-100


def _ziggurat() -> tuple[Any, Any]:
    """Calculate layers of equal area under the normal density (Doornik, "An improved ziggurat method", 2005)."""
    edges = np.zeros(LAYERS + 1)
    density = math.exp(-0.5 * ZIGGURAT_END**2)
    edges[0], edges[1] = ZIGGURAT_AREA / density, ZIGGURAT_END
    for layer in range(2, LAYERS):
        edges[layer] = math.sqrt(-2 * math.log(ZIGGURAT_AREA / edges[layer - 1] + density))
        density = math.exp(-0.5 * edges[layer] ** 2)
    return edges, edges[1:] / edges[:-1]


EDGES, RATIOS = _ziggurat()
# The methods of `rng`, for messages.
METHODS = (
    *("random()", "uniform(low, high)", "integers(low, high)", "normal(loc, scale)"),
    *("standard_normal()", "exponential(scale)", "standard_exponential()", "standard_gamma(shape)"),
    *("beta(a, b)", "choice(a)", "permutation(x)", "shuffle(x)"),
)


class Draws:
    """Draws of one sample in plain Python, bit for bit those of compiled code.

    The methods return NumPy scalars. Arithmetic of float32 with these is in float64, as in compiled code; with Python's
    numbers it is not.
    """

    def __init__(self, state: int) -> None:
        self.state = np.uint64(state)

    def random(self) -> np.float64:
        """Draw a uniform number in [0, 1)."""
        return np.float64(random(self))

    def uniform(self, low: float = 0.0, high: float = 1.0) -> np.float64:
        """Draw a uniform number in [low, high)."""
        return np.float64(uniform(self, low, high))

    def integers(self, low: int, high: int | None = None) -> np.int64:
        """Draw an integer in [low, high), or in [0, low)."""
        with np.errstate(over="ignore"):  # ranges beyond 63 bits wrap around twice
            return np.int64(integers(self, low, high))

    def standard_normal(self) -> np.float64:
        """Draw a normal number with mean 0 and deviation 1."""
        return np.float64(standard_normal(self))

    def normal(self, loc: float = 0.0, scale: float = 1.0) -> np.float64:
        """Draw a normal number with mean `loc` and deviation `scale`."""
        return np.float64(normal(self, loc, scale))

    def standard_exponential(self) -> np.float64:
        """Draw an exponential number with mean 1."""
        return np.float64(standard_exponential(self))

    def exponential(self, scale: float = 1.0) -> np.float64:
        """Draw an exponential number with mean `scale`."""
        return np.float64(exponential(self, scale))

    def standard_gamma(self, shape: float) -> np.float64:
        """Draw a gamma number with the given shape and scale 1."""
        return np.float64(standard_gamma(self, shape))

    def beta(self, a: float, b: float) -> np.float64:
        """Draw a beta number with parameters a and b."""
        return np.float64(beta(self, a, b))

    def choice(self, a: Any) -> Any:
        """Draw one of the entries of `a` along its first axis, or an integer in [0, a)."""
        return self.integers(a) if np.ndim(a) == 0 else choice(self, np.asarray(a))

    def permutation(self, x: Any) -> Any:
        """Return the entries of `x` along its first axis in random order, or the integers in [0, x)."""
        return permutation(self, np.arange(x) if np.ndim(x) == 0 else np.array(x))

    def shuffle(self, x: Any) -> None:
        """Reorder the entries of `x` along its first axis, in place."""
        (shuffle if np.ndim(x) == 1 else shuffle_rows)(self, x)


class DrawsType(types.Type):
    """Numba type of `rng` in compiled code."""

    def __init__(self) -> None:
        super().__init__(name="Draws")


draws_type = DrawsType()


@register_model(DrawsType)
class DrawsModel(models.PrimitiveModel):
    """Data model of `rng`: a pointer to the word of state."""

    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, ir.IntType(64).as_pointer())


def next_bits(rng: Any) -> Any:
    """Return 64 random bits and advance the stream."""
    with np.errstate(over="ignore"):
        rng.state = rng.state + GOLDEN
        return mix_bits(rng.state)


@intrinsic
def advance(typing_context: Any, rng: Any) -> Any:
    """Advance the state and return it."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        state = builder.add(builder.load(arguments[0]), ir.Constant(ir.IntType(64), int(GOLDEN)))
        builder.store(state, arguments[0])
        return state

    return types.uint64(draws_type), generate


@overload(next_bits)
def _next_bits(rng):
    if isinstance(rng, DrawsType):
        return lambda rng: mix_bits(advance(rng))
    return None


if config.DISABLE_JIT:

    def start_draws(state: int) -> Draws:
        """Create the `rng` of a sample from its key."""
        return Draws(state)

else:

    @intrinsic
    def start_draws(typing_context: Any, state: Any) -> Any:
        """Create the `rng` of a sample from its key."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            # In the frame of the caller: after inlining the word lives in a register.
            word = cgutils.alloca_once(builder, ir.IntType(64))
            builder.store(arguments[0], word)
            return word

        return draws_type(types.uint64), generate


@jitable
def random(rng: Any) -> Any:
    """Draw a uniform number in [0, 1) of 53 bits."""
    return as_uniform(next_bits(rng))


@jitable
def uniform(rng: Any, low: Any, high: Any) -> Any:
    """Draw a uniform number in [low, high)."""
    return low + (high - low) * random(rng)


@jitable
def below(rng: Any, count: Any) -> Any:
    """Draw an integer in [0, count) without bias: count <= 2^32 by Lemire (2019), any larger one by rejection."""
    count = np.uint64(count)
    if count <= np.uint64(1 << 32):
        product = (next_bits(rng) >> np.uint64(32)) * count
        if (product & np.uint64(0xFFFFFFFF)) < count:
            least = (np.uint64(1 << 32) - count) % count
            while (product & np.uint64(0xFFFFFFFF)) < least:
                product = (next_bits(rng) >> np.uint64(32)) * count
        return np.int64(product >> np.uint64(32))
    least = np.uint64(0xFFFFFFFFFFFFFFFF) - np.uint64(0xFFFFFFFFFFFFFFFF) % count
    bits = next_bits(rng)
    while bits >= least:
        bits = next_bits(rng)
    return np.int64(bits % count)


@jitable
def integers(rng: Any, low: Any, high: Any) -> Any:
    """Draw an integer in [low, high), or in [0, low)."""
    if high is None:
        if low <= 0:
            raise ValueError("rng.integers: high <= 0")
        return below(rng, low)
    # As in NumPy, an error and not an index anywhere in memory.
    if low >= high:
        raise ValueError("rng.integers: low >= high")
    return low + below(rng, high - low)


@jitable
def standard_normal(rng: Any) -> Any:
    """Draw a normal number with mean 0 and deviation 1, by the ziggurat."""
    while True:
        bits = next_bits(rng)
        layer = np.int64(bits & np.uint64(LAYERS - 1))
        value = 2.0 * as_uniform(bits) - 1.0
        if abs(value) < RATIOS[layer]:
            return value * EDGES[layer]
        if layer == 0:
            while True:
                x = -math.log(1.0 - random(rng)) / ZIGGURAT_END
                y = -math.log(1.0 - random(rng))
                if 2.0 * y >= x * x:
                    return -ZIGGURAT_END - x if value < 0 else ZIGGURAT_END + x
        x = value * EDGES[layer]
        upper = math.exp(-0.5 * (EDGES[layer] * EDGES[layer] - x * x))
        lower = math.exp(-0.5 * (EDGES[layer + 1] * EDGES[layer + 1] - x * x))
        if lower + random(rng) * (upper - lower) < 1.0:
            return x


@jitable
def normal(rng: Any, loc: Any, scale: Any) -> Any:
    """Draw a normal number with mean `loc` and deviation `scale`."""
    return loc + scale * standard_normal(rng)


@jitable
def standard_exponential(rng: Any) -> Any:
    """Draw an exponential number with mean 1."""
    return -math.log(1.0 - random(rng))


@jitable
def exponential(rng: Any, scale: Any) -> Any:
    """Draw an exponential number with mean `scale`."""
    return scale * standard_exponential(rng)


@jitable
def standard_gamma(rng: Any, shape: Any) -> Any:
    """Draw a gamma number with scale 1 (Marsaglia and Tsang, 2000)."""
    # For other shapes no number is ever accepted: the loop would not end.
    if not 0.0 <= shape < math.inf:
        raise ValueError("rng.standard_gamma: shape must be finite and at least 0")
    if shape == 0.0:
        return 0.0
    boosted = shape + 1.0 if shape < 1.0 else shape
    d = boosted - 1.0 / 3.0
    c = 1.0 / math.sqrt(9.0 * d)
    while True:
        x = standard_normal(rng)
        v = 1.0 + c * x
        if v > 0.0:
            v = v * v * v
            if math.log(1.0 - random(rng)) < 0.5 * x * x + d * (1.0 - v + math.log(v)):
                break
    if shape < 1.0:
        return d * v * (1.0 - random(rng)) ** (1.0 / shape)
    return d * v


@jitable
def beta(rng: Any, a: Any, b: Any) -> Any:
    """Draw a beta number, for small parameters by Jöhnk's method in logarithms, which cannot underflow to 0 / 0."""
    if not (a > 0.0 and b > 0.0):
        raise ValueError("rng.beta: a and b must be above 0")
    if a < TINY and b < TINY:
        # The result is almost certainly 0 or 1, and the logarithms below would overflow.
        return 1.0 if random(rng) < a / (a + b) else 0.0
    if a <= 1.0 and b <= 1.0:
        while True:
            x = math.log(1.0 - random(rng)) / a
            y = math.log(1.0 - random(rng)) / b
            top = max(x, y)
            total = top + math.log(math.exp(x - top) + math.exp(y - top))
            if total <= 0.0:
                return math.exp(x - total)
    first = standard_gamma(rng, a)
    return first / (first + standard_gamma(rng, b))


@jitable
def choice(rng: Any, a: Any) -> Any:
    """Draw one of the entries of an array along its first axis."""
    if len(a) == 0:
        raise ValueError("rng.choice: a must not be empty")
    return a[below(rng, len(a))]


@jitable
def shuffle(rng: Any, x: Any) -> None:
    """Reorder numbers in place (Fisher and Yates)."""
    for last in range(len(x) - 1, 0, -1):
        other = below(rng, last + 1)
        entry = x[last]
        x[last] = x[other]
        x[other] = entry


@jitable
def shuffle_rows(rng: Any, x: Any) -> None:
    """Reorder arrays in place, by the same exchanges."""
    for last in range(len(x) - 1, 0, -1):
        other = below(rng, last + 1)
        entry = x[last].copy()
        x[last] = x[other]
        x[other] = entry


@jitable
def permutation(rng: Any, copied: Any) -> Any:
    """Reorder an array that no other code refers to, and return it."""
    rng.shuffle(copied)
    return copied


@jitable
def pick(rng: Any, shares: Any) -> Any:
    """Draw the number of a branch; shares[k] is the probability of the branches up to k."""
    value = rng.random()
    for number in range(len(shares) - 1):
        if value < shares[number]:
            return number
    return len(shares) - 1


@jitable
def draw_integer(rng: Any, low: Any, high: Any, out: Any) -> None:
    """Write an integer in [low, high) to memory."""
    out[0] = integers(rng, low, high)


# Numba compares names and annotations with those of the lambda, so it has no annotations.
@overload_method(DrawsType, "random")
def _random(rng):
    return lambda rng: random(rng)


@overload_method(DrawsType, "uniform")
def _uniform(rng, low=0.0, high=1.0):
    return lambda rng, low=0.0, high=1.0: uniform(rng, low, high)


@overload_method(DrawsType, "integers")
def _integers(rng, low, high=None):
    return lambda rng, low, high=None: integers(rng, low, high)


@overload_method(DrawsType, "standard_normal")
def _standard_normal(rng):
    return lambda rng: standard_normal(rng)


@overload_method(DrawsType, "normal")
def _normal(rng, loc=0.0, scale=1.0):
    return lambda rng, loc=0.0, scale=1.0: normal(rng, loc, scale)


@overload_method(DrawsType, "standard_exponential")
def _standard_exponential(rng):
    return lambda rng: standard_exponential(rng)


@overload_method(DrawsType, "exponential")
def _exponential(rng, scale=1.0):
    return lambda rng, scale=1.0: exponential(rng, scale)


@overload_method(DrawsType, "standard_gamma")
def _standard_gamma(rng, shape):
    return lambda rng, shape: standard_gamma(rng, shape)


@overload_method(DrawsType, "beta")
def _beta(rng, a, b):
    return lambda rng, a, b: beta(rng, a, b)


@overload_method(DrawsType, "choice")
def _choice(rng, a):
    if isinstance(a, types.Integer):
        return lambda rng, a: integers(rng, a, None)
    return lambda rng, a: choice(rng, a)


@overload_method(DrawsType, "permutation")
def _permutation(rng, x):
    if isinstance(x, types.Integer):
        return lambda rng, x: permutation(rng, np.arange(x))
    return lambda rng, x: permutation(rng, x.copy())


@overload_method(DrawsType, "shuffle")
def _shuffle(rng, x):
    if x.ndim == 1:
        return lambda rng, x: shuffle(rng, x)
    return lambda rng, x: shuffle_rows(rng, x)
