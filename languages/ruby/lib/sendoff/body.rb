# frozen_string_literal: true

module Sendoff
  # Sends response bodies of every kind that Rack knows. Each method returns true if the whole body
  # has been sent; the client may have gone, which ends it without an error.
  module Body
    # Maximum number of pieces that are passed to the connection at a time.
    BATCH = 1000

    # A body that the application writes itself (Rack 3, "Streaming Body").
    class Stream
      def initialize(connection, input)
        @connection = connection
        @input = input
        @closed = false
      end

      def read(...)
        @input.read(...)
      end

      def write(text)
        raise IOError, 'the response has ended' if @closed
        raise Errno::EPIPE unless @connection.write(text) && @connection.flush

        text.bytesize
      end

      def <<(text)
        write(text)
        self
      end

      def flush
        self
      end

      def close_read; end

      def close_write
        @closed = true
      end

      alias close close_write

      def closed?
        @closed
      end
    end

    # The same for an application that has taken the response over: any of its threads may write,
    # until one closes the stream.
    class Hijacked < Stream
      def initialize(connection, input)
        super
        @lock = Mutex.new
        @ended = ConditionVariable.new
      end

      def write(text)
        @lock.synchronize { super }
      end

      def close_write
        @lock.synchronize do
          @closed = true
          @ended.broadcast
        end
      end

      alias close close_write

      # Returns when the stream is closed.
      def join
        @lock.synchronize { @ended.wait(@lock) until @closed }
      end
    end

    # Removes the chunked coding from a body whose application has added it (Rack::Chunked): the web
    # server adds its own.
    class Unchunked
      def initialize(body)
        @body = body
      end

      def each
        rest = +''
        ended = false
        @body.each do |piece|
          rest << piece.b
          while !ended && (size = rest[/\A(\h+)[^\r\n]*\r\n/, 1])
            start = rest.index("\n") + 1
            length = size.hex
            ended = length.zero?
            break if ended || rest.bytesize < start + length + 2

            yield rest.byteslice(start, length)
            rest = rest.byteslice(start + length + 2..)
          end
        end
        raise IOError, 'the chunked coding of the body has no end' unless ended
      end

      def close
        @body.close if @body.respond_to?(:close)
      end
    end

    module_function

    def send_array(connection, pieces)
      pieces.each_slice(BATCH) { |some| return false unless connection.write(*some) }
      true
    end

    # With `flush` each piece is sent at once: the client may be waiting for it.
    def send_each(connection, body, flush)
      body.each do |piece|
        return false unless connection.write(piece) && (!flush || connection.flush)
      end
      true
    end

    # Partial hijacking: the application's callable in the field `rack.hijack`.
    def send_hijacked(connection, application, input)
      stream = Hijacked.new(connection, input)
      application.call(stream)
      stream.join
      true
    ensure
      stream&.close
    end

    def send_stream(connection, body, input)
      stream = Stream.new(connection, input)
      body.call(stream)
      true
    ensure
      stream&.close
    end
  end
end
