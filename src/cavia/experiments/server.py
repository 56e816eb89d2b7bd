"""What the server of `processes` imports first: importing this makes a process a good server, and nothing else does it.

It looks for no garbage, which would take a fifth of the time of the imports that follow, and a signal to all processes
of a run does not end it: it has to tell the runner how the cells' processes end.
"""

import gc
import signal

gc.disable()
signal.signal(signal.SIGTERM, signal.SIG_IGN)
