"""Lines for the operator, on standard error."""

import os
import sys


def log(message):
    """Writes an entry in one piece, so that entries of several processes do not mix."""
    entry = f"sendoff-python[{os.getpid()}]: {message}\n"
    try:
        sys.stderr.write(entry)
        sys.stderr.flush()
    except (OSError, ValueError):
        pass  # Standard error is closed: there is nowhere to report it.
