"""Importing this stops the search for garbage, which would take a fifth of the time of the imports that follow.

For the server of `processes` only: the processes that it forks search again.
"""

import gc

gc.disable()
