"""Return values of frameworks, recognised by the names of their classes, so that no framework is imported here."""

import types


def is_named(value, module, name):
    """True if a value is of this class, and not of a subclass."""
    kind = type(value)
    return kind.__name__ == name and kind.__module__ == module


def is_at_hand(body):
    """True if all blocks of a body exist, and close() runs no code of the application: pages of Werkzeug, and so of Flask."""
    if not is_named(body, "werkzeug.wsgi", "ClosingIterator"):
        return False
    try:
        blocks, closing = [callback.__self__ for callback in body._callbacks]
        kind = type(closing)
        own = "werkzeug.wrappers.response"
        return (
            type(blocks) is types.GeneratorType
            and kind.iter_encoded.__module__ == own
            and kind.close.__module__ == own
            and type(closing.response) in (list, tuple)
            and not closing._on_close
        )
    except (AttributeError, TypeError, ValueError):
        return False  # Another version of the classes.
