"""Driver: it runs samples through a table of passes, from their rows to their places in the batch.

A row of the table is an instruction of `WIDTH` words. Most call a pass; the others choose between passes, repeat them,
or move bytes. Instructions name places by registers, which hold addresses, counters and the states of draws. Registers
are in front of scratch memory, counted downwards: register k is the word at `memory` - 8 * (k + 1). Register 0 is the
row of the sample, register 1 its place in the batch, register BOXES_ROW the row of its boxes, if the table reads them.
The initial values of the others are in `registers`.
"""

from typing import Any

import numpy as np
from numba import prange

from .calls import fetch
from .compilation import kernel, parallel_kernel
from .gathering import PREFETCHED_BYTES, prefetch_row
from .memory import copy_bytes, fill_bytes, load_float, load_word, store_word
from .passes import call_pass
from .random import GOLDEN, as_uniform, fold, mix_bits

# Instructions, with the meaning of the words after the first.
CALL = 0  # pass, x, out, parameters, sizes, key, turns, whether it draws
COPY = 1  # from, to, bytes
START = 2  # state, key, turns: begin the draws of a policy
PICK = 3  # state, shares, number of branches, where to continue for each: draw a branch
JUMP = 4  # where to continue
MOVE = 5  # to, from
SWAP = 6  # one, other
SET = 7  # register, value
WHILE = 8  # counter, limit, where to continue if the counter is not below it
NEXT = 9  # counter, where to continue
COPY_IF_APART = 10  # from, to, bytes: copy unless both are the same place
FILL = 11  # register, bytes: fill with the byte for it in `progress`
WIDTH = 9
# The word with the key of a CALL.
KEY = 6
ROW, TARGET = 0, 1
# Counters of nested loops: the registers after these two.
TURNS = 2
DEEPEST = 16
BOXES_ROW = TURNS + DEEPEST
FIRST_FREE = BOXES_ROW + 1
ANY_LENGTH = np.iinfo(np.int64).max
# The initial value of a register that holds no place.
UNSET = np.iinfo(np.int64).min
WORD = 8


@kernel
def run_samples(
    table: Any,
    instructions: Any,
    registers: Any,
    count: Any,
    positions: Any,
    addresses: Any,
    lengths: Any,
    boxes: Any,
    fetcher: Any,
    worker: Any,
    fetched: Any,
    memory: Any,
    pitch: Any,
    progress: Any,
    raises: Any,
    out: Any,
) -> None:
    """Run a table for every sample.

    `table`, `registers` and `memory` are addresses, and `boxes` those of the boxes of every sample, if any. `fetched`
    is the offset in scratch memory of room for a fetched row, `pitch` the bytes of a sample in `out`. `progress` is
    (sample, instruction, byte for FILL, status of a pass other than 0): the place of an exception, if one was raised.
    Without `raises` an exception is reported by the status RAISED. A row that could not be fetched is reported by a
    number below 0 for the instruction.
    """
    target = out.ctypes.data
    for k in range(count):
        offset = load_word(registers + WORD * k)
        store_word(memory - WORD * (k + 1), memory + offset if offset != UNSET else 0)
    for i in range(addresses.shape[0]):
        progress[0] = i
        row = addresses[i]
        if fetcher == 0 and i + 1 < addresses.shape[0]:
            prefetch_row(addresses[i + 1], PREFETCHED_BYTES)
        if fetcher != 0:
            row = fetch(fetcher, row, memory + fetched, worker)
            if row < 0:
                progress[1] = row
                return
        store_word(memory - WORD * (ROW + 1), row)
        store_word(memory - WORD * (TARGET + 1), target + i * pitch)
        if boxes.shape[0] > 0:
            store_word(memory - WORD * (BOXES_ROW + 1), boxes[i])
        length = lengths[i] if lengths.shape[0] > 0 else ANY_LENGTH
        at = 0
        while at < instructions:
            entry = table + WORD * WIDTH * at
            kind = load_word(entry)
            # Most of them name registers first.
            first = memory - WORD * (load_word(entry + WORD) + 1)
            second = memory - WORD * (load_word(entry + 2 * WORD) + 1)
            third = load_word(entry + 3 * WORD)
            at += 1
            if kind == CALL:
                progress[1] = at - 1
                key = np.uint64(0)
                if load_word(entry + 8 * WORD) != 0:
                    key = np.uint64(load_word(entry + 6 * WORD))
                    for turn in range(load_word(entry + 7 * WORD)):
                        key = fold(key, load_word(memory - WORD * (TURNS + turn + 1)))
                    key = fold(key, positions[i])
                status = call_pass(
                    load_word(entry + WORD),
                    raises,
                    load_word(second),
                    load_word(memory - WORD * (third + 1)),
                    load_word(entry + 4 * WORD),
                    memory,
                    key,
                    load_word(entry + 5 * WORD),
                    length,
                )
                if status != 0:
                    progress[3] = status
                    return
            elif kind == COPY:
                copy_bytes(load_word(second), load_word(first), third)
            elif kind == START:
                key = np.uint64(load_word(entry + 2 * WORD))
                for turn in range(third):
                    key = fold(key, load_word(memory - WORD * (TURNS + turn + 1)))
                store_word(first, fold(key, positions[i]))
            elif kind == PICK:
                # The same arithmetic as `pick`, with the state in a register.
                state = np.uint64(load_word(first)) + GOLDEN
                store_word(first, state)
                value = as_uniform(mix_bits(state))
                shares, branch = load_word(entry + 2 * WORD), 0
                while branch < third - 1 and value >= load_float(shares + WORD * branch):
                    branch += 1
                at = load_word(load_word(entry + 4 * WORD) + WORD * branch)
            elif kind == JUMP:
                at = load_word(entry + WORD)
            elif kind == MOVE:
                store_word(first, load_word(second))
            elif kind == SWAP:
                one = load_word(first)
                store_word(first, load_word(second))
                store_word(second, one)
            elif kind == SET:
                store_word(first, load_word(entry + 2 * WORD))
            elif kind == WHILE:
                if load_word(first) >= load_word(second):
                    at = third
            elif kind == NEXT:
                store_word(first, load_word(first) + 1)
                at = load_word(entry + 2 * WORD)
            elif kind == COPY_IF_APART:
                if load_word(first) != load_word(second):
                    copy_bytes(load_word(second), load_word(first), third)
            elif kind == FILL:
                fill_bytes(load_word(first), progress[2], load_word(entry + 2 * WORD))


@parallel_kernel
def run_parts(
    parts: Any,
    table: Any,
    instructions: Any,
    registers: Any,
    count: Any,
    positions: Any,
    addresses: Any,
    lengths: Any,
    boxes: Any,
    fetcher: Any,
    workers: Any,
    fetched: Any,
    memory: Any,
    memory_pitch: Any,
    pitch: Any,
    progress: Any,
    out: Any,
) -> None:
    """Run a table for the samples of all parts at once: those from parts[p] to parts[p + 1], in memory of their own.

    No exception is raised, because it would be lost: progress[p] says for each part where it stopped.
    """
    for number in prange(parts.shape[0] - 1):
        part = np.int64(number)  # Numba counts in unsigned integers, whose differences are floats
        begin, end = parts[part], parts[part + 1]
        own = lengths[begin:end] if lengths.shape[0] > 0 else lengths
        part_boxes = boxes[begin:end] if boxes.shape[0] > 0 else boxes
        run_samples(
            table, instructions, registers, count, positions[begin:end], addresses[begin:end], own, part_boxes,
            fetcher, workers[part], fetched, memory + part * memory_pitch, pitch, progress[part], False,
            out[begin * pitch : end * pitch],
        )  # fmt: skip
