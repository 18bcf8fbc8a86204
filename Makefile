# The one door. Each target installs the Debian packages it lacks (tools/install) and says so.

LISTEN ?= 127.0.0.1:8080
C_SOURCES = $(wildcard php/src/*.[ch] libfcgi/src/*.[ch] libfcgi/tests/*.c crates/capi/tests/*.c examples/c/*.c \
	languages/python/src/*.[ch] languages/ruby/ext/sendoff/*.[ch] languages/java/src/main/c/*.[ch])

# Where `make install` puts things; DESTDIR goes before them, for packages.
PREFIX ?= /usr/local
SYSCONFDIR ?= /etc
UNITDIR ?= /lib/systemd/system
# What is installed and packaged is optimized as a whole program; PROFILE=release is built in a third of that time.
PROFILE ?= dist
# Cargo has a folder of its own for each other machine; tools/cross names it, and what runs programs for that machine here.
BUILT = target/$(if $(CARGO_BUILD_TARGET),$(CARGO_BUILD_TARGET)/)$(PROFILE)
GENERATED = $(BUILT)/generated
# The folder of the modules by which stock PHP programs host workers.
MODULES = $(BUILT)
# Programs and tests in one build: Cargo gives libraries the features that all of them want, and builds them twice if it is asked twice.
BUILD_TESTS = cargo build --profile quick --workspace --bins --tests

.PHONY: help install uninstall serve demo build quick dist deb archive arm64 release libfcgi examples gem header config install-extension uninstall-extension test test-arm64 machine-tests test-deb test-release \
	test-heavy test-trixie phpt bench lab results figures style check deny fmt ktls java

# This list.
help:
	@awk '/^# / { said = said == "" ? substr($$0, 3) : said " " substr($$0, 3); next } \
		/^[a-z-]+:/ && said != "" { split($$1, name, ":"); printf "make %-18s %s\n", name[1], said } { said = "" }' Makefile

# The demonstration site, by programs that are built in little time and not optimized; `make dist` optimizes them.
# PHP runs in php-fpm.
serve: build
	mkdir -p target/quick/served
	ln -f target/quick/sendoff target/quick/sendoff-php target/quick/served/
	tools/extension host target/quick/served "$$(ls -t target/quick/deps/libsendoff_php-*.a | head -n 1)"
	tools/serve target/quick/served/sendoff $(LISTEN)

# nginx + php-fpm and Sendoff side by side, with slow readers that a page starts, and the counters of both: http://127.0.0.1:8080/.
demo: PROFILE = release
demo: dist
	tools/install demo
	cargo build --release --bin sendoff-bench
	target/release/sendoff-bench demo --listen $(LISTEN)

build:
	tools/install serve
	cargo build --profile quick --bin sendoff --bin sendoff-php

# The programs as they are installed, in target/dist, and the module for the PHP that is there.
dist:
	tools/install serve
	cargo build --profile $(PROFILE) --bin sendoff --bin sendoff-php --bin sendoff-lua
	@# The library of the module is a part of sendoff-php: a build of its own would make its dependencies again, with fewer features.
	tools/extension host $(BUILT) "$$(ls -t $(BUILT)/deps/libsendoff_php-*.a | head -n 1)"

# The programs and the module without their symbols, which stay in target/dist, the unit for systemd, manual pages, completions and log rotation; DESTDIR and PREFIX say where.
install: dist
	$(RUNNER) $(BUILT)/sendoff generate $(GENERATED)
	install -Dm755 -s -t $(DESTDIR)$(PREFIX)/bin $(BUILT)/sendoff $(BUILT)/sendoff-php $(BUILT)/sendoff-lua
	install -Dm644 -s -t $(DESTDIR)$(PREFIX)/lib/sendoff $(MODULES)/sendoff-host-*.so
	install -Dm644 -t $(DESTDIR)$(PREFIX)/share/man/man1 $(GENERATED)/*.1 packaging/sendoff-php.1 packaging/sendoff-lua.1
	install -Dm644 -t $(DESTDIR)$(PREFIX)/share/man/man5 $(GENERATED)/sendoff.toml.5
	install -Dm644 $(GENERATED)/sendoff.bash $(DESTDIR)$(PREFIX)/share/bash-completion/completions/sendoff
	install -Dm644 -t $(DESTDIR)$(PREFIX)/share/zsh/vendor-completions $(GENERATED)/_sendoff
	install -Dm644 -t $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d $(GENERATED)/sendoff.fish
	install -d $(DESTDIR)$(UNITDIR) $(DESTDIR)$(SYSCONFDIR)/logrotate.d
	sed 's|/usr/bin|$(PREFIX)/bin|' packaging/sendoff.service > $(DESTDIR)$(UNITDIR)/sendoff.service
	sed 's|/usr/bin|$(PREFIX)/bin|' packaging/sendoff.logrotate > $(DESTDIR)$(SYSCONFDIR)/logrotate.d/sendoff
	install -Dm644 -t $(DESTDIR)$(PREFIX)/share/sendoff/html packaging/html/index.html
	install -Dm644 -t $(DESTDIR)$(PREFIX)/share/sendoff/prometheus packaging/prometheus/sendoff.rules.yml
	install -Dm644 -t $(DESTDIR)$(PREFIX)/share/sendoff/grafana packaging/grafana/sendoff.json
	install -d $(DESTDIR)$(SYSCONFDIR)/sendoff
	test -e $(DESTDIR)$(SYSCONFDIR)/sendoff/sendoff.toml || \
		sed 's|/usr/share|$(PREFIX)/share|; /^# For a site with PHP/d; /^php = false/d' packaging/sendoff.toml > $(DESTDIR)$(SYSCONFDIR)/sendoff/sendoff.toml

# Removes what `make install` has put there, but for the configuration, logs and certificates.
uninstall:
	rm -f $(DESTDIR)$(PREFIX)/bin/sendoff $(DESTDIR)$(PREFIX)/bin/sendoff-php $(DESTDIR)$(PREFIX)/bin/sendoff-lua
	rm -f $(DESTDIR)$(PREFIX)/share/man/man1/sendoff.1 $(DESTDIR)$(PREFIX)/share/man/man1/sendoff-*.1
	rm -f $(DESTDIR)$(PREFIX)/share/man/man5/sendoff.toml.5
	rm -f $(DESTDIR)$(PREFIX)/share/bash-completion/completions/sendoff
	rm -f $(DESTDIR)$(PREFIX)/share/zsh/vendor-completions/_sendoff $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/sendoff.fish
	rm -rf $(DESTDIR)$(PREFIX)/lib/sendoff $(DESTDIR)$(PREFIX)/share/sendoff
	rm -f $(DESTDIR)$(UNITDIR)/sendoff.service $(DESTDIR)$(SYSCONFDIR)/logrotate.d/sendoff

# Debian packages in target/debian: sendoff, its debug symbols, PHP workers, the extension for php-fpm, the drop-in for libfcgi0ldbl (docs/operate.md).
deb: dist
	tools/install deb
	tools/install libfcgi
	cargo build --profile $(PROFILE) --package sendoff-capi --lib
	libfcgi/build $(BUILT)/libsendoff_capi.a $(BUILT)
	tools/extension build $(BUILT)/sendoff.so $(BUILT)/libsendoff_capi.a
	tools/deb $(PROFILE)

# The archive of the programs for distributions without packages, target/sendoff-VERSION-MACHINE-linux-gnu.tar.gz.
archive: dist
	packaging/release/archive $(BUILT) target

# Packages and the archive for arm64, target/arm64/debian and target/arm64/*.tar.gz, by a compiler for it in a Debian 12 of its own (tools/cross); as root.
arm64:
	tools/install arm64
	PROFILE=$(PROFILE) tools/debian bookworm-arm64 deb archive

# What is published, in target/release-VERSION: an apt repository of the packages, an archive, images of containers, a bill of materials, checksums. KEY
# names the key of gpg that signs them (docs/operate.md); ARM64=1 adds packages and an archive for arm64.
release: deb $(if $(ARM64),arm64)
	tools/install release
	tools/release $(PROFILE) $(if $(ARM64),target/arm64)

# The drop-in for Debian's libfcgi0ldbl, target/release/libfcgi.so.0 (docs/libfcgi.md).
libfcgi:
	tools/install libfcgi
	cargo build --release --package sendoff-capi
	libfcgi/build target/release/libsendoff_capi.a target/release

# The example on libsendoff, target/release/page (docs/libfcgi.md).
examples:
	tools/install libfcgi
	cargo build --release --package sendoff-capi
	examples/c/build target/release/libsendoff_capi.a target/release/page

# The Ruby gem, target/release/sendoff-VERSION-PLATFORM.gem (docs/ruby.md).
gem:
	tools/install gem
	cargo build --release --package sendoff-capi
	languages/ruby/build target/release/libsendoff_capi.a target/release
# The connector for Tomcat 10, target/release/java, and caches of Spring, target/release/java-spring (docs/java.md).
java:
	tools/install java
	cargo build --release --package sendoff-capi
	languages/java/build target/release/libsendoff_capi.a target/release/java
	languages/java/build-spring target/release/java/sendoff-tomcat.jar target/release/java-spring

# include/sendoff.h, from crates/capi.
header:
	cargo test --release --package sendoff-capi --test programs -- --ignored header::renew

# docs/config.md, from the keys in crates/settings.
config:
	cargo test --release --package sendoff-settings --test configurations -- --ignored docs::renew

# sendoff.so for the php-fpm that is there (docs/fastcgi.md); PHP_CONFIG=/path/to/php-config for another PHP.
install-extension:
	tools/install extension
	tools/extension install

# Removes what `make install-extension` has put there.
uninstall-extension:
	tools/extension uninstall

# What every commit must pass; about 10 minutes on two processors once it has been built. It goes on after a failure, and lists all failures at
# its end.
test: style
	tools/install serve
	@# The rest is installed meanwhile: compiling needs none of it.
	tools/install test & installs=$$!; $(BUILD_TESTS); built=$$?; wait $$installs && exit $$built
	tools/cargo-test --profile quick --workspace

# The tests that need no Debian package: of the crates alone. Below a minute once they are built.
quick:
	tools/cargo-test --profile quick --workspace --exclude sendoff-php --exclude sendoff-tests --exclude sendoff-bench --lib --bins

# Long runs against crashes, slow clients and real applications; CONTRIBUTING.md says when. It goes on after a failure, and
# lists all failures at its end.
test-heavy:
	tools/install heavy
	$(BUILD_TESTS)
	tools/test-heavy

# The tests of TLS where the kernel encrypts, in a virtual machine under qemu: 15 minutes. Needs root.
ktls:
	tools/install ktls
	tools/ktls

# PHP's own tests, with lazy strings and without: every test must end the same way. 40 minutes for all of them;
# SUITES="ext/json/tests Zend/tests" for some, which are folders of PHP's source.
phpt:
	tools/install phpt
	php/phpt/run $(SUITES)

# `make test` on Debian 13, with its PHP 8.4, in a folder of its own (tools/debian); as root.
test-trixie:
	tools/debian trixie test

# The packages of `make deb` in a Debian 12 of their own: installed, run, upgraded, removed, purged (tools/test-deb); as root.
test-deb: deb
	tools/test-deb

# Each form of `make release` in a system of its own: installed, run, upgraded, removed (tools/test-release); as root.
test-release: deb
	tools/install release
	tools/test-release $(PROFILE)

# The packages for arm64 in a virtual machine with such a processor, in software: installed, run, upgraded, removed, on kernels with pages of 4 and of 16 KiB
# (tools/test-arm64); as root. PROFILE=quick for programs that are not optimized.
test-arm64:
	tools/install arm64
	PROFILE=$(PROFILE) tools/debian bookworm-arm64 deb machine-tests
	tools/test-arm64

# Unit tests of what depends on the machine: shared memory, leases, confinement, sockets; in target/machine-tests, for tools/test-arm64.
machine-tests:
	rm -rf target/machine-tests
	mkdir -p target/machine-tests
	cargo test --profile quick --no-run --lib $(addprefix --package sendoff-,sandbox sys transport worker) 2> target/machine-tests.log || \
		{ cat target/machine-tests.log >&2; exit 1; }
	sed -n 's/.*Executable .*(\(.*\))$$/\1/p' target/machine-tests.log | xargs cp -t target/machine-tests

# Ratios to Debian's nginx + php-fpm. Wants a quiet machine.
bench: dist
	tools/install bench
	cargo build --release --bin sendoff-bench
	target/release/sendoff-bench --sendoff $(BUILT)/sendoff

# Every experiment of the papers and our own beside other servers, and the report target/lab/report.html (bench/README.md). Takes hours and may
# be interrupted: it measures what has no result yet. QUICK=--quick for some minutes. Wants a quiet machine.
lab: dist
	tools/install lab
	cargo build --profile $(PROFILE) --package sendoff-capi --lib
	libfcgi/build $(BUILT)/libsendoff_capi.a $(BUILT)
	cargo build --release --bin sendoff-bench
	target/release/sendoff-bench run all $(QUICK) --sendoff $(BUILT)/sendoff; failed=$$?; \
		target/release/sendoff-bench report $(QUICK) && exit $$failed

# The page of results in docs, from the last `make lab`: target/lab must hold a full run.
results:
	cargo build --release --bin sendoff-bench
	target/release/sendoff-bench report --markdown docs/$@.md

# The tables of README.md, docs/measurements.md, docs/tuning.md and the example site, from bench/figures.json.
figures:
	cargo test --release --package sendoff-bench renew -- --ignored

# Formatting, and sentences that have to be read twice; takes a second.
style:
	tools/prose check
	cargo fmt --all --check

# What every commit must pass beside the tests: style, lints of Rust, formatting of C. Lints compile everything once more.
check: style
	tools/install check
	cargo clippy --profile quick --workspace --all-targets -- -D warnings
	clang-format --dry-run -Werror $(C_SOURCES)

# Licences, sources and known vulnerabilities of the dependencies (deny.toml); fetches cargo-deny and the list of vulnerabilities.
deny:
	command -v cargo-deny > /dev/null || cargo install --locked --version 0.20.2 cargo-deny
	cargo deny check

fmt:
	cargo fmt --all
	clang-format -i $(C_SOURCES)
