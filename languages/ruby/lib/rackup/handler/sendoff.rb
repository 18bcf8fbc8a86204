# frozen_string_literal: true

# Rack 3: Rackup::Handler.get('sendoff') loads this file.
require 'rackup/handler'
require 'sendoff'

Rackup::Handler.register('sendoff', Sendoff::Handler)
