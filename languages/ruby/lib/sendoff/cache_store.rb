# frozen_string_literal: true

require 'active_support'
require 'active_support/cache'
require_relative '../sendoff'

module Sendoff
  # A cache of Rails in the memory that the processes of the application share:
  #
  #   config.cache_store = Sendoff::CacheStore.new
  #
  # Purges of the site's pages by tags concern its values; their tags are the option `tags` of `write` and `fetch`.
  # Outside of the server of this gem nothing is kept.
  class CacheStore < ActiveSupport::Cache::Store
    # The lifetime in seconds of values without one.
    LIFETIME = 10 * 365 * 86_400

    # Clears other stores of this class, too.
    def clear(_options = nil)
      Sendoff.purge_fragments
    end

    private

    def read_entry(key, **_options)
      kept = Sendoff.fetch_fragment(key)
      kept && deserialize_entry(kept)
    end

    def write_entry(key, entry, tags: [], **_options)
      left = entry.expires_at ? (entry.expires_at - Time.now.to_f).ceil : LIFETIME
      payload = serialize_entry(entry)
      return true if Sendoff.store_fragment(key, payload, ttl: left, tags: tags)

      # A value that does not fit must not leave an older one behind.
      Sendoff.delete_fragment(key)
      false
    end

    def delete_entry(key, **_options)
      is_there = !Sendoff.fetch_fragment(key).nil?
      Sendoff.delete_fragment(key)
      is_there
    end
  end
end
