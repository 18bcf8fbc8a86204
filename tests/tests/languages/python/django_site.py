"""A site on Django: its admin with a database, and downloads."""

import os
import sys

import django
from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.http import FileResponse, HttpResponse, StreamingHttpResponse

FOLDER = os.path.dirname(os.path.abspath(__file__))

settings.configure(
    ALLOWED_HOSTS=["*"],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": os.path.join(FOLDER, "database")}},
    DEFAULT_AUTO_FIELD="django.db.models.AutoField",
    INSTALLED_APPS=[
        "django.contrib.admin",
        "django.contrib.auth",
        "django.contrib.contenttypes",
        "django.contrib.messages",
        "django.contrib.sessions",
        "django.contrib.staticfiles",
    ],
    MIDDLEWARE=[
        "django.middleware.security.SecurityMiddleware",
        "django.contrib.sessions.middleware.SessionMiddleware",
        "django.middleware.common.CommonMiddleware",
        "django.middleware.csrf.CsrfViewMiddleware",
        "django.contrib.auth.middleware.AuthenticationMiddleware",
        "django.contrib.messages.middleware.MessageMiddleware",
    ],
    ROOT_URLCONF=__name__,
    SECRET_KEY="for the tests",
    STATIC_URL="/static/",
    TEMPLATES=[
        {
            "BACKEND": "django.template.backends.django.DjangoTemplates",
            "APP_DIRS": True,
            "OPTIONS": {
                "context_processors": [
                    "django.template.context_processors.request",
                    "django.contrib.auth.context_processors.auth",
                    "django.contrib.messages.context_processors.messages",
                ]
            },
        }
    ],
    USE_TZ=True,
)


def download(request):
    return FileResponse(open(os.path.join(FOLDER, "a"), "rb"), filename="a.bin", as_attachment="save" in request.GET)


def stream(request):
    return StreamingHttpResponse(f"line {number}\n" for number in range(100))


def echo(request):
    return HttpResponse(request.body, content_type="application/octet-stream")


if __name__ == "__main__":
    # Makes the database, with an administrator.
    django.setup()
    from django.core.management import call_command

    call_command("migrate", verbosity=0)
    from django.contrib.auth.models import User

    User.objects.create_superuser("admin", "admin@example.org", "secret")
    sys.exit()

django.setup()

from django.contrib import admin  # noqa: E402
from django.contrib.staticfiles.views import serve  # noqa: E402
from django.urls import path, re_path  # noqa: E402
from django.views.decorators.csrf import csrf_exempt  # noqa: E402

urlpatterns = [
    path("admin/", admin.site.urls),
    path("download", download),
    path("stream", stream),
    path("echo", csrf_exempt(echo)),
    re_path(r"^static/(?P<path>.*)$", serve, {"insecure": True}),
]

application = get_wsgi_application()
