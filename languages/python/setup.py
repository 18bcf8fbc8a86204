"""Builds the extension module over libsendoff, which becomes part of it.

The library is a static one: $SENDOFF_LIBRARY, or what Cargo makes of the repository that this package lies in.
"""

import os
import re
import subprocess
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent


def static_library() -> str:
    given = os.environ.get("SENDOFF_LIBRARY")
    if given:
        return given
    if not (REPOSITORY / "crates" / "capi").is_dir():
        raise SystemExit(
            "libsendoff is missing: build in a clone of Sendoff's repository, "
            "or set SENDOFF_LIBRARY to the path of libsendoff_capi.a"
        )
    command = ["cargo", "build", "--release", "--package", "sendoff-capi"]
    try:
        subprocess.run(command, cwd=REPOSITORY, check=True)
    except FileNotFoundError:
        raise SystemExit("Rust is missing: install it from https://rustup.rs") from None
    target = Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target"))
    return str(target / "release" / "libsendoff_capi.a")


def check_library(library: str, header: Path) -> None:
    """Refuses a library that lacks functions of the header: the module would be linked all the same, and fail at its
    first start."""
    try:
        command = ["nm", "--defined-only", library]
        # It warns of members without symbols.
        listed = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
    except FileNotFoundError:
        raise SystemExit("nm is missing: install binutils") from None
    except subprocess.CalledProcessError:
        raise SystemExit(f"{library} is missing, or no static library") from None
    defined = set(re.findall(r" T (sendoff_\w+)$", listed.stdout, re.MULTILINE))
    declared = re.findall(r"^\w[^;#]*?\b(sendoff_\w+)\(", header.read_text(), re.MULTILINE)
    missing = [name for name in declared if name not in defined]
    if missing:
        raise SystemExit(
            f"{library} is older than {header}: it lacks {', '.join(missing)}. "
            "Build it anew: cargo build --release --package sendoff-capi"
        )


def header() -> Path:
    """The library's header: in the source distribution, or in the repository."""
    return next(path for path in (HERE / "include/sendoff.h", REPOSITORY / "include/sendoff.h") if path.exists())


class BuildWithLibrary(build_ext):
    """Finds the library on demand, so that metadata can be built without it."""

    def build_extension(self, ext):
        library = static_library()
        check_library(library, header())
        ext.extra_objects = [library]
        # A module linked with an older library is built anew.
        ext.depends += ext.extra_objects
        super().build_extension(ext)


setup(
    cmdclass={"build_ext": BuildWithLibrary},
    ext_modules=[
        Extension(
            "sendoff._sendoff",
            ["src/module.c", "src/thread.c", "src/head.c", "src/fragments.c"],
            depends=["src/thread.h"],
            include_dirs=[str(HERE / "include"), str(REPOSITORY / "include")],
            define_macros=[("Py_LIMITED_API", "0x03090000")],
            py_limited_api=True,
            extra_compile_args=["-std=gnu11", "-fvisibility=hidden", "-Wall", "-Wextra"],
            extra_link_args=[
                "-Wl,--exclude-libs,ALL,--gc-sections,-z,now,-z,relro,-z,nodelete",
                "-Wl,--strip-debug,-Bsymbolic-functions",
                "-lpthread",
                "-ldl",
                "-lm",
                "-lgcc_s",
            ],
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp39"}},
)
