"""Exceptions of loaderx.

LoaderxError
├── ArgumentError   (ValueError)    an argument has a value that cannot work
├── DataError       (ValueError)    a file or a row is damaged or has an unexpected form
├── TransformError  (ValueError)    a transform cannot be compiled, or does not fit its input
├── StateError      (ValueError)    a saved state belongs to another stream
├── ClosedError     (RuntimeError)  the iterator is closed
└── WorkerError     (RuntimeError)  the workers of a cluster would build other batches

Missing files raise FileNotFoundError, wrong types TypeError, rows beyond the end IndexError, as everywhere in Python.
Exceptions of a user's own transform or source arrive as they are, with a note that names the step and the rows.
"""


class LoaderxError(Exception):
    """Base class of all exceptions of loaderx."""


class ArgumentError(LoaderxError, ValueError):
    """Error in an argument, whose value cannot work."""


class DataError(LoaderxError, ValueError):
    """Error in a file or a row, which is damaged or has an unexpected form."""


class TransformError(LoaderxError, ValueError):
    """Error in a transform, which cannot be compiled or does not fit its input."""


class StateError(LoaderxError, ValueError):
    """Error in a saved state, which belongs to another stream."""


class ClosedError(LoaderxError, RuntimeError):
    """Error of an iterator that is closed."""


class WorkerError(LoaderxError, RuntimeError):
    """Error of the workers of a cluster, which would build other batches than this process."""


def annotate(error: BaseException, where: str, what: str) -> None:
    """Add a note to an exception, replacing an earlier one: an exception object may be raised several times."""
    prefix = f"loaderx: {where} "
    notes = getattr(error, "__notes__", [])
    notes[:] = [note for note in notes if not str(note).startswith(prefix)]
    error.add_note(prefix + what)
