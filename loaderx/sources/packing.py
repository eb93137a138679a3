"""`PackedDataset`: documents of any length, packed into rows of a fixed length."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from loaderx.errors import ArgumentError, DataError
from loaderx.kernels.packing import cut_documents, first_fit, pack_rows, sort_pieces
from loaderx.spec import Spec

from .parts import ArrayPart
from .source import Array, Rows, Source, as_bytes, narrow_into
from .tokens import FilePath, Tokens, open_tokens, whole_number

LONG = ("split", "raise")
# Limit for rows, for pieces in a row and for tokens in a row: all are 32-bit numbers.
MAX_INT32 = (1 << 31) - 1


class PackedDataset(Source):
    """Rows of `length` tokens, each packed with whole documents.

    A row is {"tokens": the documents, one after the other, "segments": the number of the document within the row,
    from 1, "positions": the index of the token within its document, from 0}. Padding is `pad`, 0 and 0.
    Attention is for tokens of the same segment. A token has a target if its successor is of the same segment.

    The plan is first-fit: documents are placed in their order, each into the first row that has room for it. It is
    made once, for all rows, so rows support random access like those of any source.

    tokens   a raw file of tokens (`dtype` gives their kind), a .npy file of one axis or an array of one axis, with
                      all documents in it; or a list of arrays, the documents
    lengths  number of tokens of each document; alone: documents follow one another and cover all of `tokens`
    starts   first token of each; alone: each ends where the next begins. With `lengths`: any pieces of `tokens`
    long     what to do with a document longer than a row: "split" makes its pieces documents of their own,
                      "raise" raises an error
    offset   bytes to skip at the beginning of a raw file

    Empty documents are skipped. The plan needs 12 bytes per document and 8 per row.
    """

    def __init__(
        self,
        tokens: FilePath | NDArray[Any] | Sequence[NDArray[Any]],
        length: int,
        *,
        lengths: ArrayLike | None = None,
        starts: ArrayLike | None = None,
        dtype: DTypeLike | None = None,
        pad: int = 0,
        long: Literal["split", "raise"] = "split",
        offset: int = 0,
    ) -> None:
        length = whole_number("length", length, 1)
        if length > MAX_INT32:
            raise ArgumentError(f"`length` (={length}) must be at most {MAX_INT32}.")
        if long not in LONG:
            raise ArgumentError(f'`long` (={long!r}) must be "split" or "raise".')
        if isinstance(tokens, list | tuple):
            if lengths is not None or starts is not None:
                raise ArgumentError(
                    "`tokens` is a list of documents; these need no `lengths` and no `starts`."
                )
            self._tokens, lengths = _joined(tokens, dtype)
        else:
            self._tokens = open_tokens(tokens, dtype, offset)
            if not self._tokens.array.flags.c_contiguous:
                self._tokens = Tokens(
                    ArrayPart(np.ascontiguousarray(self._tokens.array)), self._tokens.name
                )
        stored = self._tokens.array.dtype
        limits = np.iinfo(stored)
        if whole_number("pad", pad, int(limits.min)) > limits.max:
            raise ArgumentError(f"`pad` (={pad}) must be at most {limits.max}, for {stored}.")
        self._padding = np.full(length, pad, stored)
        self._spec = {
            "tokens": Spec((length,), stored.newbyteorder("=")),
            "segments": Spec((length,), np.int32),
            "positions": Spec((length,), np.int32),
        }
        begins, sizes = _documents(starts, lengths, self._tokens)
        if long == "raise" and sizes.max() > length:
            document = int(np.argmax(sizes > length))
            raise DataError(
                f"document {document} has {sizes[document]} tokens, and a row has {length}; make rows longer, or use "
                'long="split".'
            )
        self._plan(begins, sizes, length)

    def _plan(self, begins: Rows, sizes: Rows, length: int) -> None:
        count = int(np.sum(-(-sizes // length)))
        if count > MAX_INT32:
            raise ArgumentError(
                f"there are {count} documents, or pieces of them; the limit is {MAX_INT32}."
            )
        piece_starts, piece_sizes = np.empty(count, np.int64), np.empty(count, np.int32)
        cut_documents(begins, sizes, length, piece_starts, piece_sizes)
        # Any two rows hold more than one row could: otherwise first-fit would have filled the first of them.
        most = min(count, 2 * (int(sizes.sum()) // length) + 2)
        room = np.empty(2 << (most - 1).bit_length(), np.int32)
        rows = np.empty(count, np.int32)
        first_fit(piece_sizes, length, room, rows)
        self._firsts = np.empty(int(rows.max()) + 2, np.int64)
        self._starts, self._sizes = np.empty_like(piece_starts), np.empty_like(piece_sizes)
        sort_pieces(rows, piece_starts, piece_sizes, self._firsts, self._starts, self._sizes)
        self._filled = int(sizes.sum()) / (len(self) * length)

    @property
    def spec(self) -> dict[str, Spec]:
        return self._spec

    @property
    def filled(self) -> float:
        """Share of tokens that are not padding."""
        return self._filled

    def __len__(self) -> int:
        return len(self._firsts) - 1

    def read(self, rows: Rows, out: Sequence[Array]) -> None:
        self._tokens.part.check()
        tokens, segments, positions = out
        source = self._tokens.array
        straight = tokens.dtype == source.dtype
        packed = tokens if straight else np.empty(tokens.shape, source.dtype)
        pack_rows(
            rows,
            self._firsts,
            self._starts,
            self._sizes,
            source.ctypes.data,
            as_bytes(self._padding),
            as_bytes(packed),
            segments,
            positions,
        )
        if not straight:
            # The tokens have another byte order, or are wider than needed.
            narrow_into(packed.astype(self._spec["tokens"].dtype, copy=False), rows, tokens)


def _joined(documents: Sequence[Any], dtype: DTypeLike | None) -> tuple[Tokens, Rows]:
    """Return all documents as one sequence, and their lengths."""
    for number, document in enumerate(documents):
        if not isinstance(document, np.ndarray) or document.ndim != 1:
            raise ArgumentError(
                f"document {number} of `tokens` (={document!r}) must be a NumPy array of one axis."
            )
        if document.dtype != documents[0].dtype:
            raise ArgumentError(
                f"all documents must be of one dtype: the first has {documents[0].dtype}, document {number} has "
                f"{document.dtype}."
            )
    if not documents:
        raise ArgumentError("`tokens` is an empty list; give at least one document.")
    sizes = np.array([len(document) for document in documents], np.int64)
    return open_tokens(np.concatenate(documents), dtype), sizes


def _documents(
    starts: ArrayLike | None, lengths: ArrayLike | None, tokens: Tokens
) -> tuple[Rows, Rows]:
    """Return the first token and the length of every document."""
    total = len(tokens.array)
    begins = None if starts is None else _integers("starts", starts, total)
    sizes = None if lengths is None else _integers("lengths", lengths, total)
    if begins is None and sizes is None:
        raise ArgumentError(
            "say what the documents are: give their `lengths`, their `starts`, or both."
        )
    if begins is None:
        assert sizes is not None
        if sizes.sum() != total:
            raise ArgumentError(
                f"`lengths` add up to {sizes.sum()}, and {tokens.name} holds {total} tokens."
            )
        begins = np.cumsum(sizes) - sizes
    elif sizes is None:
        sizes = np.diff(begins, append=total)
        if begins[0] != 0 or sizes.min() < 0:
            raise ArgumentError(
                "`starts` must begin with 0 and ascend; otherwise give `lengths`, too."
            )
    if len(begins) != len(sizes):
        raise ArgumentError(
            f"`starts` and `lengths` must have the same length, got {len(begins)} and {len(sizes)}."
        )
    beyond = begins + sizes > total
    if np.any(beyond):
        document = int(np.argmax(beyond))
        raise ArgumentError(
            f"document {document} ends at {begins[document] + sizes[document]}, and {tokens.name} holds {total} tokens."
        )
    if not np.any(sizes):
        raise DataError(f"{tokens.name}: there are no documents, or only empty ones.")
    return begins, sizes


def _integers(name: str, values: ArrayLike, most: int) -> Rows:
    numbers = np.asarray(values)
    if numbers.ndim != 1 or numbers.dtype.kind not in "iu" or numbers.size == 0:
        raise ArgumentError(
            f"`{name}` must be a list of integers, one per document, got {Spec(numbers.shape, numbers.dtype)}."
        )
    if numbers.min() < 0 or numbers.max() > most:
        wrong = numbers[(numbers < 0) | (numbers > most)][0]
        raise ArgumentError(
            f"`{name}` has {wrong}; it must be from 0 to {most}, the number of tokens."
        )
    return np.ascontiguousarray(numbers, np.int64)
