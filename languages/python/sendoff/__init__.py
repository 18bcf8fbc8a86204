"""Runs WSGI and ASGI applications as FastCGI processes; see the command ``sendoff-python``."""

from .fragments import fragment

__all__ = ["fragment"]
__version__ = "0.1.0"
