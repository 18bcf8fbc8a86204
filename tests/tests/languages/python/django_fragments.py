"""A Django site whose template keeps a fragment."""

import os

import django
from django.conf import settings
from django.core.cache import caches
from django.core.wsgi import get_wsgi_application
from django.http import HttpResponse
from django.template import Context, Engine
from django.urls import path

settings.configure(
    SECRET_KEY="x",
    ROOT_URLCONF=__name__,
    ALLOWED_HOSTS=["*"],
    CACHES={
        "default": {"BACKEND": "sendoff.django.FragmentCache", "KEY_PREFIX": "own"},
        "template_fragments": {
            "BACKEND": "sendoff.django.FragmentCache",
            "OPTIONS": {"TAGS": ["templates"]},
        },
    },
)
django.setup()

TEMPLATE = Engine(libraries={"cache": "django.templatetags.cache"}).from_string(
    "{% load cache %}{% cache 600 menu lang %}<b>{{ runs }}</b> {{ lang }}{% endcache %}"
)


def runs():
    with open("runs", "ab", buffering=0) as file:
        file.write(b".")
        return os.fstat(file.fileno()).st_size


def page(request):
    context = Context({"runs": runs, "lang": request.GET.get("lang", "en")})
    return HttpResponse(TEMPLATE.render(context))


def value(request):
    cache = caches["default"]
    steps = [cache.get("a"), cache.add("a", {"x": 1}), cache.add("a", 2), cache.get("a")]
    steps += [cache.touch("a", 60), cache.touch("b"), cache.get_or_set("c", lambda: 7), cache.get("c")]
    cache.set("a", "x" * (2 << 20))
    steps += [cache.get("a"), cache.delete("c"), cache.delete("c"), cache.get("c", 5)]
    cache.set("d", 1, timeout=0)
    steps += [cache.get("d"), cache.incr("e") if cache.add("e", 1) else None]
    return HttpResponse(repr(steps))


def clear(_request):
    caches["template_fragments"].clear()
    return HttpResponse("cleared")


urlpatterns = [path("page", page), path("value", value), path("clear", clear), path("hello", page)]
application = get_wsgi_application()
