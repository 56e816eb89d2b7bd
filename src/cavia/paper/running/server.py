"""Sets up the server of `processes`, which imports this module first. Does nothing in any other process.

The server runs no garbage collection, which would take a fifth of the time of the imports that follow, and ignores
signals, because it must report to the runner how the cells' processes end. The processes that it forks are normal ones.
"""

import gc
import os
import signal
import sys


def _set_up() -> None:
    gc.disable()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # inherited by the forked processes: the runner handles Ctrl-C
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.register_at_fork(after_in_child=_undo)


def _undo() -> None:
    gc.freeze()  # imported objects are not garbage
    gc.enable()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


if any("multiprocessing.forkserver" in argument for argument in sys.orig_argv):
    _set_up()
