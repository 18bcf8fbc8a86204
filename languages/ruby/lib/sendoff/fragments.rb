# frozen_string_literal: true

# Fragments are parts of pages that one process makes and all processes of the application send.
module Sendoff
  # Longest wait for another process that makes a fragment, in milliseconds.
  PATIENCE = 5000
  # The longest lifetime in seconds: ten years.
  LONGEST = 10 * 365 * 86_400
  # Memory for fragments, in bytes, unless the pool has its own.
  FRAGMENTS = 32 << 20
  private_constant :PATIENCE, :LONGEST, :FRAGMENTS

  class << self
    # The bytes of a fragment. If it is not kept, the block makes them, and they are kept for `ttl` seconds. `tags` are
    # names by which `purge_fragments` finds it; its key is one, too.
    def fragment(key, ttl:, tags: [])
      asked = ttl.to_i.positive? ? NativeFragments.ask(key.to_s, tags.map(&:to_s), PATIENCE) : nil
      return FragmentCount.kept(asked) if asked.is_a?(String)

      begin
        made = FragmentCount.make { yield.to_str }
      ensure
        NativeFragments.end_making(asked, [ttl.to_i, LONGEST].min, made) if asked
      end
      made
    end

    # The kept fragment, or nil.
    def fetch_fragment(key)
      kept = NativeFragments.fetch(key.to_s)
      kept && FragmentCount.kept(kept)
    end

    # Keeps a fragment. False: it does not fit.
    def store_fragment(key, data, ttl:, tags: [])
      return false unless ttl.to_i.positive?

      seconds = [ttl.to_i, LONGEST].min
      NativeFragments.store(key.to_s, tags.map(&:to_s), seconds, data, NativeFragments.purges)
    end

    # Purges one fragment.
    def delete_fragment(key)
      NativeFragments.purge(key.to_s)
    end

    # Purges the fragments with one of these tags; without an argument all fragments.
    def purge_fragments(tags = nil)
      return NativeFragments.purge(nil) if tags.nil?

      tags.each { |tag| NativeFragments.purge(tag.to_s) }
    end

    # Keeps fragments in this process and those that it forks.
    def share_fragments
      NativeFragments.share(FRAGMENTS)
      # The descriptors in it are closed now.
      ENV.delete('SENDOFF_FRAGMENTS')
    end
  end

  # Counts the fragments of a thread's current request.
  class FragmentCount
    class << self
      def current
        Thread.current.thread_variable_get(:sendoff_fragments) || reset
      end

      def reset
        Thread.current.thread_variable_set(:sendoff_fragments, new)
        Thread.current.thread_variable_get(:sendoff_fragments)
      end

      def kept(bytes)
        current.kept += 1
        bytes
      end

      def make
        begun = Process.clock_gettime(Process::CLOCK_MONOTONIC)
        yield
      ensure
        current.made += 1
        current.seconds += Process.clock_gettime(Process::CLOCK_MONOTONIC) - begun
      end
    end

    attr_accessor :kept, :made, :seconds

    def initialize
      @kept = @made = 0
      @seconds = 0.0
    end

    # A sentence about them, or nil.
    def note
      return if (kept + made).zero?

      "made of #{kept + made} fragments, #{kept} kept, #{made} made in #{(seconds * 1000).round} ms"
    end
  end
  private_constant :FragmentCount
end
