"""Messages for users about functions that Numba cannot compile."""

import linecache
import re
from typing import Any

from loaderx.kernels import passes
from loaderx.kernels.distributions import METHODS

# Lines in Numba's messages: "During: typing of call at /folder/file.py (12)", "Raised from /folder/file.py (12)".
PLACE = re.compile(r"(?:at|from) (\S.*?) \((\d+)\)")
# Numba writes colours if colorama is installed, wherever the message goes.
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def explain_failure(error: Exception, function: Any) -> str:
    """Return a message about a function that Numba could not compile, with hints."""
    message = COLOUR.sub("", str(error))
    code = getattr(function, "py_func", function).__code__
    name = f"{function.__name__!r} ({code.co_filename}:{code.co_firstlineno})"
    reason = _reason(message)
    for file, line in PLACE.findall(message):
        if file != passes.__file__:
            text = linecache.getline(file, int(line)).strip()
            reason.append(f"in line {line} of {file}" + (f": {text}" if text else ""))
            break
    if "Untyped global name" in message and "<class 'function'>" in message:
        reason.append(
            "A function that a transform calls must be compiled, too: decorate it with `@numba.njit`."
        )
    elif re.search(r"Untyped global name|of type Module\((?!<module '(numpy|math))", message):
        reason.append(
            "Numba supports Python, math and NumPy. Put a function that needs another library into `transforms` "
            "undecorated; it then runs in Python."
        )
    if "readonly array" in message:
        reason.append(
            "An array that is a parameter or a global cannot be written, since other threads read it. Write to a copy."
        )
    if "DrawsType" in message or " of type Draws" in message:
        reason.append(f"In compiled code `rng` has {', '.join(METHODS)}.")
    return (
        f"Numba cannot compile the transform {name}:\n  " + "\n  ".join(reason) + "\n"
        "Call it on one sample with `.py(sample, np.random.default_rng(0), ...)` to see it run in plain Python."
    )


def _reason(message: str) -> list[str]:
    """Return the lines of a message that have the reason, without those on the context."""
    reason: list[str] = []
    for line in map(str.strip, message.splitlines()):
        if reason and line.startswith(("File", "During:", "There are")):
            break
        if line and not line.startswith(("Failed in", "- Resolution failure", "File", "During:")):
            reason.append(line)
    return reason[:6]
