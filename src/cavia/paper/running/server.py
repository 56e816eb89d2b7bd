"""Sets up the server of `processes`, which imports this first. Nothing happens in any other process.

The server looks for no garbage, which would take a fifth of the time of the imports that follow, and is deaf to
signals: it has to tell the runner how the cells' processes end. What it forks is a process like any other.
"""

import gc
import os
import signal
import sys


def _set_up() -> None:
    gc.disable()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # processes inherit this one: Ctrl-C is the runner's to handle
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.register_at_fork(after_in_child=_undo)


def _undo() -> None:
    gc.freeze()  # what was imported is no garbage
    gc.enable()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


if any("multiprocessing.forkserver" in argument for argument in sys.orig_argv):
    _set_up()
