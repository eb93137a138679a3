"""What can go wrong, as types.

LoaderxError
├── ArgumentError   (ValueError)    an argument has a value that cannot work
├── DataError       (ValueError)    a file or a row is not what it should be
├── TransformError  (ValueError)    a transform cannot be compiled, or does not fit its input
├── StateError      (ValueError)    a saved state belongs to another stream
└── ClosedError     (RuntimeError)  the iterator was closed before

Missing files raise FileNotFoundError, wrong types TypeError, rows beyond the end IndexError, as everywhere in Python.
Exceptions of a user's own transform or source arrive as they are, with a note that names the step and the rows.
"""


class LoaderxError(Exception):
    """Anything that loaderx itself raises."""


class ArgumentError(LoaderxError, ValueError):
    """An argument has a value that cannot work."""


class DataError(LoaderxError, ValueError):
    """A file or a row is not what it should be."""


class TransformError(LoaderxError, ValueError):
    """A transform cannot be compiled, or does not fit its input."""


class StateError(LoaderxError, ValueError):
    """A saved state belongs to another stream."""


class ClosedError(LoaderxError, RuntimeError):
    """The iterator was closed before."""


def annotate(error: BaseException, where: str, what: str) -> None:
    """Note in an exception where it was raised, once: an exception object that is raised again has a note of before."""
    prefix = f"loaderx: {where} "
    notes = getattr(error, "__notes__", [])
    notes[:] = [note for note in notes if not str(note).startswith(prefix)]
    error.add_note(prefix + what)
