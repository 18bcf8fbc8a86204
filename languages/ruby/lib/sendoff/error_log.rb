# frozen_string_literal: true

module Sendoff
  # `rack.errors`: whole lines go to the web server's log. Lines written after the end of the
  # request, by a logger that has kept the object, go to standard error.
  class ErrorLog
    def initialize(connection)
      @connection = connection
      # Another thread may not use the connection.
      @thread = Thread.current
      @line = +''
      @mutex = Mutex.new
    end

    def puts(*lines)
      text = lines.flatten.map { |line| line.to_s.chomp << "\n" }.join
      write(text.empty? ? "\n" : text)
      nil
    end

    def write(*texts)
      texts.map!(&:to_s)
      @mutex.synchronize do
        texts.each { |text| @line << text.b }
        entry, newline, rest = @line.rpartition("\n")
        unless newline.empty?
          @line = rest
          log(entry)
        end
      end
      texts.sum(&:bytesize)
    end

    def <<(text)
      write(text)
      self
    end

    def flush
      @mutex.synchronize do
        log(@line) unless @line.empty?
        @line = +''
      end
      self
    end

    # Called at the end of the request.
    def close_request
      flush
      @mutex.synchronize { @connection = nil }
    end

    private

    def log(entry)
      return if Thread.current == @thread && @connection&.log(entry)

      $stderr.write("#{entry}\n")
    end
  end
end
