$(SENDOFF_LIBRARY):
	$(CARGO) build --release --package sendoff-capi --target-dir $(SENDOFF_ROOT)/target --manifest-path $(SENDOFF_ROOT)/Cargo.toml
