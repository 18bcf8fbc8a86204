# frozen_string_literal: true

# Rack 2: Rack::Handler.get('sendoff') loads this file.
require 'rack/handler'
require 'sendoff'

Rack::Handler.register('sendoff', 'Sendoff::Handler')
