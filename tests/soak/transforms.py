"""Transform in a module of its own, so that pickles can name it."""

import loaderx


@loaderx.transform
def brightness(x, rng, amount):
    gain = 1 + rng.uniform(-amount, amount)
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            for c in range(x.shape[2]):
                x[i, j, c] *= gain
