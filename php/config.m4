dnl sendoff.so by phpize, which is how PIE builds extensions. `make install-extension` in the folder above needs no autotools.

PHP_ARG_ENABLE([sendoff],
  [whether to enable Sendoff],
  [AS_HELP_STRING([--enable-sendoff], [Hand files over to a Sendoff front])])

if test "$PHP_SENDOFF" != "no"; then
  AC_PATH_PROG([CARGO], [cargo])
  if test -z "$CARGO"; then
    AC_MSG_ERROR([Rust is missing: install it from https://rustup.rs (1.88 or later)])
  fi
  AC_MSG_CHECKING([for PHP 8.2 to 8.5, not thread-safe])
  sendoff_vernum=`$PHP_CONFIG --vernum`
  if test "$sendoff_vernum" -lt 80200 || test "$sendoff_vernum" -ge 80600; then
    AC_MSG_ERROR([it is made for PHP 8.2 to 8.5])
  fi
  AC_MSG_RESULT([yes])

  SENDOFF_ROOT="$abs_srcdir/.."
  SENDOFF_LIBRARY="$SENDOFF_ROOT/target/release/libsendoff_capi.a"
  SENDOFF_SHARED_DEPENDENCIES="$SENDOFF_LIBRARY"
  dnl The helper thread may still be there when PHP unloads its modules. (Behind -Wl, as libtool warns of archives.)
  SENDOFF_SHARED_LIBADD="-Wl,-z,nodelete -Wl,--exclude-libs,ALL -Wl,$SENDOFF_LIBRARY -lm"
  PHP_SUBST([SENDOFF_ROOT])
  PHP_SUBST([SENDOFF_LIBRARY])
  PHP_SUBST([SENDOFF_SHARED_DEPENDENCIES])
  PHP_SUBST([SENDOFF_SHARED_LIBADD])
  PHP_SUBST([CARGO])

  sendoff_sources=
  for sendoff_source in "$abs_srcdir"/src/lazy*.c "$abs_srcdir"/src/hints.c "$abs_srcdir"/src/extension.c; do
    sendoff_sources="$sendoff_sources src/`basename $sendoff_source`"
  done
  PHP_NEW_EXTENSION([sendoff], [$sendoff_sources], [$ext_shared],,
    [-std=gnu11 -fvisibility=hidden -I$SENDOFF_ROOT/include])
  PHP_ADD_MAKEFILE_FRAGMENT
fi
