"""Orbax checkpoints: the state of an iterator as an item next to model and optimizer; needs the extra `orbax`.

    manager.save(step, args=ocp.args.Composite(model=ocp.args.StandardSave(model), data=IteratorSave(iterator)))
    manager.restore(step, args=ocp.args.Composite(model=..., data=IteratorRestore(iterator)))

All items of a step appear together or not at all. The state is that at the time of the call, also if Orbax writes it in
the background while the iterator continues.
"""

from dataclasses import dataclass
from typing import Any

import orbax.checkpoint as ocp
from etils import epath

from .run.iterator import LoaderIterator


class IteratorHandler(ocp.JsonCheckpointHandler):  # type: ignore[misc]
    """Checkpoint handler that writes `get_state()` as JSON, on one process: it is the same on all of them."""

    async def async_save(
        self, directory: epath.Path, item: Any = None, args: "IteratorSave | None" = None
    ) -> Any:
        """Begin to write the state of an iterator."""
        iterator = item if args is None else args.item
        return await super().async_save(directory, args=ocp.args.JsonSave(iterator.get_state()))

    def restore(
        self, directory: epath.Path, item: Any = None, args: "IteratorRestore | None" = None
    ) -> Any:
        """Resume an iterator from a checkpoint; return it, or the state if there is no iterator."""
        state = super().restore(directory)
        iterator = item if args is None else args.item
        if iterator is None:
            return state
        iterator.set_state(state, strict=args.strict if args is not None else True)
        return iterator


@ocp.args.register_with_handler(IteratorHandler, for_save=True)
@dataclass
class IteratorSave(ocp.args.CheckpointArgs):  # type: ignore[misc]
    """Arguments of a save: the iterator."""

    item: LoaderIterator


@ocp.args.register_with_handler(IteratorHandler, for_restore=True)
@dataclass
class IteratorRestore(ocp.args.CheckpointArgs):  # type: ignore[misc]
    """Arguments of a restore: the iterator to resume; without one the state itself is returned."""

    item: LoaderIterator | None = None
    strict: bool = True
