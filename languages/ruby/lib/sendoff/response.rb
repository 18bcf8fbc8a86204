# frozen_string_literal: true

module Sendoff
  # Sends the result of an application.
  class Response
    # Raised for a response that cannot be sent as it is.
    class Invalid < StandardError; end

    REASONS = Hash.new do |known, status|
      reason = defined?(::Rack::Utils) && ::Rack::Utils::HTTP_STATUS_CODES[status]
      known[status] = reason ? "Status: #{status} #{reason}\r\n" : "Status: #{status}\r\n"
    end
    private_constant :REASONS

    # Fields that belong to the connection between web server and client, or have another meaning in
    # a CGI header block.
    NOT_PASSED_ON = /\A(?:status|connection|keep-alive|transfer-encoding|x-sendoff|rack\..*)\z/i
    BAD_NAME = %r{[\x00-\x20"(),/:;<=>?@\[\\\]\{\}\x7f]|\A\z}n
    BAD_VALUE = /[\x00-\x08\x0a-\x1f\x7f]/n
    # Cache: the kinds of known field names.
    KINDS = {} # rubocop:disable Style/MutableConstant
    MOST_KINDS = 1000
    private_constant :NOT_PASSED_ON, :BAD_NAME, :BAD_VALUE, :KINDS, :MOST_KINDS

    def self.kind(name)
      KINDS[name] || begin
        kind = classify(name.b)
        KINDS[name.dup.freeze] = kind if KINDS.size < MOST_KINDS
        kind
      end
    end

    def self.classify(name)
      if BAD_NAME.match?(name) then :bad
      elsif name.casecmp?('content-length') then :length
      elsif name.casecmp?('transfer-encoding') then :coding
      elsif name.casecmp?('rack.hijack') then :hijack
      elsif NOT_PASSED_ON.match?(name) then :not_passed_on
      else :field
      end
    end
    private_class_method :classify

    attr_reader :status, :headers

    def initialize(connection, env, (status, headers, body))
      @connection = connection
      @env = env
      @status = status
      @headers = headers
      @body = body
      @begun = false
    end

    # True if a part of it has been written.
    def begun?
      @begun
    end

    # Sends it, then closes the body: the client does not wait for `close`, and gets a whole response
    # also if `close` fails, as with Puma. The block gets the exception of `close`. False: the response
    # is incomplete, and the connection must be cut.
    def send(&failed)
      whole = send_whole
      @connection.finish if whole && closes?
      whole
    ensure
      close(&failed) if closes?
    end

    private

    def send_whole
      read_headers
      if switches? then switch
      elsif @bodyless then send_head
      elsif @hijack then send_head_first && Body.send_hijacked(@connection, @hijack, @env['rack.input'])
      else send_body
      end
    end

    # True if the application continues in another protocol (partial hijacking).
    def switches?
      @status == 101 && @hijack && @env['rack.hijack']
    end

    # Sends the head over the request's own socket, and gives the application that socket.
    def switch
      io = @env['rack.hijack'].call
      @begun = true
      io.write("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n", @lines, "\r\n")
      @hijack.call(io)
      true
    end

    def read_headers
      @status = Integer(@status)
      @lines = String.new
      @length = nil
      @hijack = nil
      @headers.each { |name, value| field(name.to_s, value) }
      @bodyless = @env['REQUEST_METHOD'] == 'HEAD' || @status < 200 || @status == 204 || @status == 304
    end

    def field(name, value)
      case Response.kind(name)
      when :field then lines(name, value)
      when :length
        lines(name, value)
        @length = Integer(value.to_s, 10, exception: false)
      when :coding
        @body = Body::Unchunked.new(@body) if value.to_s.casecmp?('chunked')
      when :hijack then @hijack = value
      when :bad
        raise Invalid, "the name of a header field: #{name.inspect}"
      end
    end

    # Several values are in an array (Rack 3), or in a string of lines (Rack 2).
    def lines(name, value)
      return value.each { |one| line(name, one.to_s) } if value.is_a?(Array)

      value = value.to_s
      return line(name, value) unless value.include?("\n")

      value.split("\n").each { |one| line(name, one) }
    end

    def line(name, value)
      value = value.b unless value.ascii_only?
      raise Invalid, "the value of header field #{name}: #{value.inspect}" if BAD_VALUE.match?(value)

      @lines << name << ': ' << value << "\r\n"
    end

    def send_head
      @begun = true
      @connection.head(head)
    end

    # Sends the head of a stream at once, as Puma does: the first piece may come much later.
    def send_head_first
      send_head && @connection.flush
    end

    def head
      REASONS[@status] + @lines
    end

    def send_body
      if @body.is_a?(Array)
        send_array(@body)
      elsif (part = file_part) && (sent = send_file(*part))
        sent != :failed
      elsif (pieces = all_pieces)
        send_array(pieces)
      elsif @body.respond_to?(:each)
        (@length ? send_head : send_head_first) && Body.send_each(@connection, @body, @length.nil?)
      else
        send_head_first && Body.send_stream(@connection, @body, @env['rack.input'])
      end
    end

    # The pieces of a body that has them all. Not of a body with a length, as in Puma: `to_ary` of
    # Rack 3 calls `close`, and would do so before the response.
    def all_pieces
      return if @length || !@body.respond_to?(:to_ary)

      pieces = @body.to_ary
      pieces if pieces.is_a?(Array)
    end

    # For a body that is a part of a file: the open file or its path, the size that the file must
    # have (nil: any), start and length (nil: up to the end of the file).
    def file_part
      return range_part unless @body.respond_to?(:to_path)

      file = OpenFile.behind(@body)
      return open_part(file) if file

      path = @body.to_path
      path ? [path, @length, 0, nil] : range_part
    end

    def open_part(file)
      start = OpenFile.position(file)
      [file, @length && (start + @length), start, nil] if start
    end

    # Rack::Files answers a request for one range with an object that has no to_path.
    def range_part
      body = @body
      body = body.instance_variable_get(:@body) while body.class.name == 'Rack::BodyProxy'
      return unless body.class.name == 'Rack::Files::BaseIterator' && body.ranges.size == 1

      range = body.ranges.first
      [body.path, body.options[:size], range.begin, range.size] unless @length && @length != range.size
    end

    # nil: nothing has been written.
    def send_file(source, size, start, length)
      # Also if an interrupt follows.
      @begun = true
      sent = @connection.file(head, source, size, start, length)
      @begun = false unless sent
      sent
    end

    def send_array(pieces)
      unless @length
        @lines << "Content-Length: #{pieces.sum(&:bytesize)}\r\n"
      end
      send_head && Body.send_array(@connection, pieces)
    end

    def closes?
      @body.respond_to?(:close)
    end

    def close
      @body.close
    rescue Exception => e # rubocop:disable Lint/RescueException
      yield e
    end
  end
end
