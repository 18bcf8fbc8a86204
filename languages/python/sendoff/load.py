"""Finds the application that the command line names."""

import importlib
import inspect
import re

_NAME = re.compile(r"(?P<module>[\w.]+)(?::(?P<attributes>[\w.]+)(?P<call>\(\))?)?").fullmatch


class NotFound(Exception):
    """There is no such application."""


def load(name):
    """The application ``module:attribute``; ``module:function()`` is called for it, ``module`` means ``module:application``."""
    found = _NAME(name)
    if found is None:
        raise NotFound(f"{name!r} is not of the form module:application")
    module = importlib.import_module(found["module"])
    application = module
    for attribute in (found["attributes"] or "application").split("."):
        try:
            application = getattr(application, attribute)
        except AttributeError:
            raise NotFound(f"{found['module']} ({module.__file__}) has no {attribute!r}") from None
    if found["call"]:
        application = application()
    if not callable(application):
        raise NotFound(f"{name} is not callable: {application!r}")
    return application


def is_asgi(application):
    """True if the application is a coroutine function or an object with one as ``__call__``, as ASGI 3 requires."""
    call = getattr(application, "__call__", None)
    return inspect.iscoroutinefunction(application) or inspect.iscoroutinefunction(call)
