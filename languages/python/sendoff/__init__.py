"""Runs WSGI and ASGI applications as FastCGI processes; see the command ``sendoff-python``."""

__version__ = "0.1.0"
