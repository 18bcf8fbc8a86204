# frozen_string_literal: true

module Sendoff
  # Serves requests with a number of threads until it is told to stop. Each thread has one connection at a time.
  class Worker
    # Pause after accept(2) has failed, in seconds: descriptors may have run out.
    ACCEPT_PAUSE = 0.1

    # Interval in seconds at which waiting threads are woken up until they have noticed that the
    # worker stops: a thread that is about to wait misses a wake-up.
    WAKE_INTERVAL = 0.02

    ERROR_PAGE = "Internal Server Error\n"
    private_constant :ERROR_PAGE

    def initialize(app, listener, threads:, processes:)
      @app = app
      @listener = listener
      @threads = threads
      @environment = Environment.new(settings(threads, processes))
      @peers = ENV.fetch('FCGI_WEB_SERVER_ADDRS', nil)
      # The thread that repeats `stop`, once the worker stops.
      @stopping = nil
      @events = Queue.new
      @connections = {}
      @process = Process.pid
    end

    # The block is called before the first request, or by several threads before their first
    # requests.
    def at_first_request(&block)
      @at_first_request = block
    end

    # Serves. Requests that have been read are finished after `stop`.
    def run
      running = Array.new(@threads) { start }
      until running.empty?
        event = @events.pop
        if event == :stop
          @stopping ||= repeat_stop
          running.each { |thread| release(thread) }
        else
          running.delete(event)
          # The application has ended it (Thread.exit).
          running << start unless @stopping
        end
      end
      @stopping.kill
    end

    # May be called by a signal handler.
    def stop
      @events.push(:stop)
    end

    # Has these signals stop the worker. A process that the application forks ends by them, as any
    # other.
    def stop_by(signals)
      signals.each do |name|
        trap(name) do
          next stop if Process.pid == @process

          trap(name, 'DEFAULT')
          Process.kill(name, Process.pid)
        end
      end
    end

    private

    def settings(threads, processes)
      settings = {
        'rack.multithread' => threads > 1,
        'rack.multiprocess' => processes > 1,
        'rack.run_once' => false
      }
      settings['rack.version'] = ::Rack::VERSION if defined?(::Rack::VERSION)
      settings
    end

    def start
      Thread.new do
        Thread.current.report_on_exception = true
        serve until @stopping
      ensure
        @connections.delete(Thread.current)
        @events.push(Thread.current)
      end
    end

    def repeat_stop
      Thread.new do
        loop do
          sleep WAKE_INTERVAL
          stop
        end
      end
    end

    # Ends the wait of a thread without a request.
    def release(thread)
      case connection = @connections[thread]
      when nil then nil
      when :accepting then thread.wakeup
      else connection.stop
      end
    rescue ThreadError
      nil
    end

    def serve
      connection = accept or return
      @connections[Thread.current] = connection
      begin
        # Also if the worker stops: `accept` may have read the first request.
        while (parameters = connection.next_request)
          break if !respond(connection, parameters) || @stopping
        end
        closed = connection.close || true
      ensure
        connection.cut unless closed
      end
    end

    def accept
      @connections[Thread.current] = :accepting
      Connection.accept(@listener.descriptor, @peers) unless @stopping
    rescue SystemCallError => e
      warn "sendoff: no connection can be accepted: #{e.message}"
      sleep ACCEPT_PAUSE
      nil
    end

    # Answers a request. False: the connection is unusable.
    def respond(connection, parameters)
      begins
      errors = ErrorLog.new(connection)
      whole = call(connection, parameters, errors)
    ensure
      errors.close_request
      cut(connection) unless whole
    end

    def begins
      @at_first_request&.call
      @at_first_request = nil
    end

    def call(connection, parameters, errors)
      env = @environment.complete(parameters, connection, errors)
      hijack = env['rack.hijack']
      result = answer(connection, env)
      end_if_forked
      return true if hijack&.taken?

      response = Response.new(connection, env, result)
      whole = response.send do |error|
        end_if_forked(error)
        report(errors, error)
      end
      # `each` and `close` may fork as well.
      end_if_forked
      finished(connection, env, response, nil, whole)
      whole
    rescue Environment::BodyCut
      false
    rescue Exception => e # rubocop:disable Lint/RescueException
      end_if_forked(e)
      report(errors, e)
      return true if hijack&.taken?

      whole = !response&.begun? && fail_with_page(connection)
      finished(connection, env, response, e, whole) if env
      whole
    ensure
      hijack&.expire
    end

    # Ends a process that the application has forked and that has come back out of it: the connection and the listener
    # are its parent's.
    def end_if_forked(error = nil)
      return if Process.pid == @process

      warn error.full_message(highlight: false, order: :top) unless error.nil? || error.is_a?(SystemExit)
      $stdout.flush
      exit!(error.is_a?(SystemExit) ? error.status : error.nil?)
    end

    # The application's result. If the response is explained, the front is told its line.
    def answer(connection, env)
      return @app.call(env) unless connection.explains?

      count = FragmentCount.reset
      places = Places.new
      returned = places.follow { @app.call(env) }
      connection.explain("bytes\t#{places.last}\t\t") if places.last
      connection.explain("note\t\t#{count.note}\t") if count.note
      returned
    end

    # The client gets the written output, but no end of the response.
    def cut(connection)
      connection.flush
    ensure
      connection.cut
    end

    def fail_with_page(connection)
      connection.head("Status: 500 Internal Server Error\r\nContent-Type: text/plain\r\n" \
                      "Content-Length: #{ERROR_PAGE.bytesize}\r\n") &&
        connection.write(ERROR_PAGE)
    end

    def report(errors, error)
      errors.write(error.full_message(highlight: false, order: :top))
      errors.flush
    rescue StandardError => e
      warn "sendoff: an exception could not be logged: #{e.class}"
    end

    # Rack 3's callbacks after a response, the last one first.
    def finished(connection, env, response, error, whole)
      callbacks = env['rack.response_finished']
      return if callbacks.nil? || callbacks.empty?

      whole ? connection.finish : connection.flush
      callbacks.reverse_each do |callback|
        callback.call(env, response&.status, response&.headers, error)
      rescue StandardError => e
        report(env['rack.errors'], e)
      end
    end
  end
end
