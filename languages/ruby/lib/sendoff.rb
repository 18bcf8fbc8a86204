# frozen_string_literal: true

# Serves Rack applications to web servers that speak FastCGI, especially Sendoff. Files are handed
# over as files.
module Sendoff
end

require_relative 'sendoff/version'
require_relative 'sendoff/native'
require_relative 'sendoff/fragments'
require_relative 'sendoff/listener'
require_relative 'sendoff/error_log'
require_relative 'sendoff/hijack'
require_relative 'sendoff/environment'
require_relative 'sendoff/body'
require_relative 'sendoff/places'
require_relative 'sendoff/open_file'
require_relative 'sendoff/response'
require_relative 'sendoff/worker'
require_relative 'sendoff/master'
require_relative 'sendoff/handler'
