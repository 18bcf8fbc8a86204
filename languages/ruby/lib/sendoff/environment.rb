# frozen_string_literal: true

require 'stringio'
require 'tempfile'

module Sendoff
  # Makes Rack's environment from a request's FastCGI parameters.
  class Environment
    # A larger request body is kept in a file.
    MEMORY_BODY = 128 * 1024

    # Raised if the request body is incomplete.
    class BodyCut < IOError; end

    # `settings` are the entries that are the same for all requests.
    def initialize(settings)
      @settings = settings
    end

    # The environment for `parameters`, which are extended in place. Reads the request body from the
    # connection.
    def complete(parameters, connection, errors)
      # Some servers send them as fields, too.
      parameters.delete('HTTP_CONTENT_TYPE')
      parameters.delete('HTTP_CONTENT_LENGTH')
      paths(parameters)
      parameters['QUERY_STRING'] ||= ''
      parameters['SERVER_NAME'] ||= 'localhost'
      parameters['SERVER_PORT'] ||= '80'
      if (protocol = parameters['SERVER_PROTOCOL'])
        parameters['HTTP_VERSION'] = protocol
      end
      parameters.update(@settings)
      parameters['rack.url_scheme'] = scheme(parameters)
      parameters['rack.errors'] = errors
      parameters['rack.response_finished'] = []
      parameters['rack.input'] = input(parameters, connection)
      # The front has taken the chunks apart. An application that passes its fields on would send both.
      parameters.delete('HTTP_TRANSFER_ENCODING') unless parameters['CONTENT_LENGTH'].to_s.empty?
      hijack(parameters, connection)
      parameters
    end

    private

    # A WebSocket and the like. Other requests have no socket of their own.
    def hijack(parameters, connection)
      possible = connection.tunnel?
      parameters['rack.hijack?'] = possible
      parameters['rack.hijack'] = Hijack.new(connection, parameters) if possible
    end

    def scheme(parameters)
      case parameters['HTTPS']
      when nil, '', 'off', 'OFF' then parameters['REQUEST_SCHEME'] == 'https' ? 'https' : 'http'
      else 'https'
      end
    end

    # CGI decodes the path, but Rack applications expect it as the client has sent it. It is taken
    # from REQUEST_URI, unless the web server has rewritten or normalised it.
    def paths(parameters)
      script = parameters['SCRIPT_NAME'] || String.new
      info = parameters['PATH_INFO'] || String.new
      if script == '/'
        script = String.new
        info.prepend('/') unless info.start_with?('/')
      end
      info = original(parameters['REQUEST_URI'], script, info) || escape(info)
      info << '/' if script.empty? && info.empty?
      parameters['SCRIPT_NAME'] = script
      parameters['PATH_INFO'] = info
      parameters['REQUEST_PATH'] = script + info
    end

    # The end of the URI's path that corresponds to `info`, if the rest corresponds to `script`.
    def original(uri, script, info)
      return unless uri

      path = uri.start_with?('/') ? uri[/\A[^?#]*/] : uri[%r{\A[a-zA-Z][a-zA-Z0-9+.-]*://[^/?#]*([^?#]*)}, 1]
      return unless path
      return unless unescape(path) == script + info
      return path.byteslice(script.bytesize..) if path.start_with?(script)

      # An escaped script name: its length in the URI.
      path.sub(/\A(?:%\h\h|[^%]){#{script.bytesize}}/n, '')
    end

    def unescape(text)
      return text unless text.include?('%')

      text.gsub(/%(\h\h)/n) { Regexp.last_match(1).hex.chr }
    end

    def escape(text)
      text.gsub(%r{[^A-Za-z0-9\-._~!$&'()*+,;=:@/]}n) { |byte| format('%%%02X', byte.ord) }
    end

    def input(parameters, connection)
      length = parameters['CONTENT_LENGTH']&.to_i
      bodyless = !parameters.key?('HTTP_TRANSFER_ENCODING') && %w[GET HEAD].include?(parameters['REQUEST_METHOD'])
      input = StringIO.new(String.new)
      input = receive(input, connection, length) unless length ? length.zero? : bodyless
      input.rewind
      input
    end

    def receive(input, connection, length)
      input.binmode
      buffer = String.new
      loop do
        count = connection.read(buffer) or raise BodyCut
        break if count.zero?

        input = to_file(input) if input.is_a?(StringIO) && input.pos + count > MEMORY_BODY
        input.write(buffer)
      end
      raise BodyCut if length && input.pos != length

      input
    end

    def to_file(memory)
      file = Tempfile.create('sendoff', binmode: true)
      File.unlink(file.path)
      file.write(memory.string)
      file
    end
  end
end
