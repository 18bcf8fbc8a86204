# frozen_string_literal: true

require 'socket'

module Sendoff
  # Full hijacking of one request that asks for another protocol (`rack.hijack`): the application gets a
  # socket, on which it answers in HTTP/1.1, and the request's thread is free.
  class Hijack
    # Raised if the request has ended, or its client has left.
    class Impossible < IOError; end

    def initialize(connection, env)
      @connection = connection
      @env = env
      @process = Process.pid
      @expired = false
    end

    # The socket, which is the application's; the same at each call.
    def call
      @io ||= take
    end

    # True if the application has the socket.
    def taken?
      !@io.nil?
    end

    # Ends the request: the connection may carry another one.
    def expire
      @expired = true
    end

    private

    def take
      raise Impossible, 'the request has ended' if @expired || Process.pid != @process

      descriptor = @connection.tunnel or raise Impossible, 'the client has left, or the response has begun'
      @env['rack.hijack_io'] = UNIXSocket.for_fd(descriptor)
    end
  end
end
