# frozen_string_literal: true

require 'rbconfig'

module Sendoff
  # Notes the last line of the application that a thread has run, for `sendoff explain`: libraries
  # build the response from the result of that line.
  class Places
    OWN = [__dir__, '<internal:', '(eval'].freeze
    private_constant :OWN

    # The place as FILE:LINE; nil if no line of the application has run.
    attr_reader :last

    def initialize
      @libraries = OWN + Gem.path + RbConfig::CONFIG.values_at('rubylibprefix', 'rubylibdir', 'vendordir', 'sitedir')
    end

    # Runs the block, and returns its value.
    def follow
      thread = Thread.current
      trace = TracePoint.new(:line) do |at|
        @last = "#{at.path}:#{at.lineno}" if Thread.current == thread && !library?(at.path)
      end
      trace.enable
      yield
    ensure
      trace&.disable
    end

    private

    def library?(path)
      path.start_with?(*@libraries)
    end
  end
end
