# frozen_string_literal: true

require 'English'

module Sendoff
  # Bodies that are open files. An open file is sent without `each` only if `each` would yield its
  # bytes, unchanged, from a known position to its end.
  module OpenFile
    module_function

    # The open file that a body with `to_path` is, also inside wrappers that delegate
    # (Rack::BodyProxy, Delegator, Tempfile); nil if the body only names a file. (From Ruby 3.2 on
    # every IO has `to_path`.)
    def behind(body)
      file = body.to_io if body.respond_to?(:to_io)
      file if file.is_a?(::IO)
    end

    # The position from which `each` would yield the bytes of the file; nil if it would yield others.
    def position(file)
      return if file.closed? || converts?(file) || !file.method(:each).owner.equal?(::IO)

      # Writes what is buffered, as `each` would. Fails for a file that cannot be read.
      file.readpartial(0)
      # Fails if bytes were read ahead or pushed back.
      file.sysseek(0, IO::SEEK_CUR)
    rescue IOError, SystemCallError
      nil
    end

    # True if `each` changes the bytes, or leaves some out (paragraph mode).
    def converts?(file)
      file.internal_encoding || Sendoff.converts_newlines?(file) || $INPUT_RECORD_SEPARATOR == ''
    end
    private_class_method :converts?
  end
end
