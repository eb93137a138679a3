"""`PackedDataset`: documents of any length, several of them in each row of a fixed length."""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from loaderx.errors import ArgumentError, DataError
from loaderx.kernels.packing import cut_documents, first_fit, pack_rows, sort_pieces
from loaderx.spec import Spec

from .parts import ArrayPart
from .source import Array, Rows, Source, as_bytes, store
from .tokens import FilePath, Tokens, open_tokens, whole_number

LONG = ("split", "raise")
# Of rows, of pieces in a row and of tokens in a row: all are 32-bit numbers.
MOST = (1 << 31) - 1


class PackedDataset(Source):
    """Rows of `length` tokens, in each of which stand as many whole documents as the plan found room for.

    A row is {"tokens": the documents, one after the other, "segments": the number of the document within the row,
    from 1, "positions": the place within the document, from 0}; where no document is, these are `pad`, 0 and 0.
    Attention is for tokens of the same segment, and a target for tokens whose successor is of the same segment.

    Documents are taken in their order, and each goes to the first row that has room for it (first-fit). That is
    settled once, for all rows, so rows are random access like those of any source.

    tokens   a raw file of tokens (`dtype` says of which kind), a .npy file of one axis or an array of one axis, with
             all documents in it; or a list of arrays, the documents
    lengths  how many tokens each document has; alone: they follow one another and are all of `tokens`
    starts   where each begins; alone: each ends where the next begins. With `lengths` any pieces of `tokens`
    long     what happens to a document longer than a row: "split", where its pieces are documents of their own, or
             "raise"
    offset   bytes to leave out at the beginning of a raw file

    Empty documents are left out. The plan takes 12 bytes per document and 8 per row.
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
        if length > MOST:
            raise ArgumentError(f"`length` (={length}) must be at most {MOST}.")
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
                f"document {document} has {sizes[document]} tokens and a row {length}; make rows longer, or use "
                'long="split".'
            )
        self._plan(begins, sizes, length)

    def _plan(self, begins: Rows, sizes: Rows, length: int) -> None:
        count = int(np.sum(-(-sizes // length)))
        if count > MOST:
            raise ArgumentError(f"{count} documents, or pieces of them, are more than {MOST}.")
        piece_starts, piece_sizes = np.empty(count, np.int64), np.empty(count, np.int32)
        cut_documents(begins, sizes, length, piece_starts, piece_sizes)
        # Any two rows hold more than one row could, or the first of them would have taken what is in the other.
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
        """The share of all places that hold a token and no padding."""
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
            # Of another byte order, or wider than what is wanted.
            store(packed.astype(self._spec["tokens"].dtype, copy=False), rows, tokens)


def _joined(documents: Sequence[Any], dtype: DTypeLike | None) -> tuple[Tokens, Rows]:
    """One sequence of all documents, and their lengths."""
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
    """Where every document begins and how long it is."""
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
            raise ArgumentError("`starts` must begin with 0 and ascend; give `lengths` with them.")
    if len(begins) != len(sizes):
        raise ArgumentError(
            f"`starts` and `lengths` must be as many, not {len(begins)} and {len(sizes)}."
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
            f"`{name}` must be a list of integers, one per document, not {Spec(numbers.shape, numbers.dtype)}."
        )
    if numbers.min() < 0 or numbers.max() > most:
        wrong = numbers[(numbers < 0) | (numbers > most)][0]
        raise ArgumentError(f"`{name}` has {wrong}, and must be from 0 to {most}, the tokens.")
    return np.ascontiguousarray(numbers, np.int64)
