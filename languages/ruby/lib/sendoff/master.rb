# frozen_string_literal: true

require 'io/wait'

module Sendoff
  # Forks worker processes, replaces workers that end, and stops them.
  class Master
    # A worker that ends within this time, in seconds, and gets no request delays the next one. A
    # worker that dies in a request is replaced at once, so that a bad page does not slow down the
    # others.
    SHORT_LIFE = 1
    PAUSES = [0, 0.1, 0.5, 1, 2, 5].freeze
    STOP_SIGNALS = %w[TERM INT QUIT].freeze

    # `worker` makes the worker of a new process. Workers that have not ended after `patience`
    # seconds are killed.
    def initialize(processes, patience:, &worker)
      @processes = processes
      @patience = patience
      @worker = worker
      @started = {}
      @failures = 0
      @wake, @waker = IO.pipe
      @stopping = nil
    end

    # Runs until a signal stops it.
    def run
      before = STOP_SIGNALS.to_h { |name| [name, trap(name) { stop }] }
      trap('CHLD') { wake }
      until @stopping && @started.empty?
        fork_workers unless @stopping
        @wake.wait_readable(timeout)
        @wake.read_nonblock(4096, exception: false)
        reap
        kill_late
      end
    ensure
      trap('CHLD', 'DEFAULT')
      before&.each { |name, handler| trap(name, handler || 'DEFAULT') }
    end

    # May be called by a signal handler.
    def stop
      @stopping ||= now
      wake
    end

    private

    def now
      Process.clock_gettime(Process::CLOCK_MONOTONIC)
    end

    def wake
      @waker.write_nonblock('.', exception: false)
    end

    # Number of seconds until the next action that no signal announces.
    def timeout
      return [@stopping + @patience - now, 0.01].max if @stopping

      @retry_at && [@retry_at - now, 0.01].max
    end

    def fork_workers
      return if @retry_at && now < @retry_at

      @retry_at = nil
      start while @started.size < @processes
    end

    def start
      master = Process.pid
      ear, mouth = IO.pipe
      child = fork do
        ear.close
        (STOP_SIGNALS + ['CHLD']).each { |name| trap(name, 'DEFAULT') }
        @wake.close
        @waker.close
        Sendoff.end_with_parent
        exit!(0) if Process.ppid != master
        serve(mouth)
      end
      mouth.close
      @started[child] = [now, ear]
    end

    def serve(mouth)
      worker = @worker.call
      worker.at_first_request { tell(mouth) }
      worker.stop_by(STOP_SIGNALS)
      worker.run
      exit
    end

    def reap
      while (child, status = Process.wait2(-1, Process::WNOHANG))
        started, ear = @started.delete(child) || next
        works = worked?(ear)
        next if @stopping

        @failures = !works && now - started < SHORT_LIFE ? @failures + 1 : 0
        pause = PAUSES[[@failures, PAUSES.size - 1].min]
        @retry_at = now + pause if pause.positive?
        warn "sendoff: worker #{child} has ended (#{status}), another one starts" \
             "#{" in #{pause} s" if pause.positive?}"
      end
    rescue Errno::ECHILD
      nil
    end

    # Runs in a worker: it has received a request.
    def tell(mouth)
      mouth.write_nonblock('.', exception: false)
    rescue SystemCallError
      nil # The master has ended.
    end

    # True if a process that has ended had received a request.
    def worked?(ear)
      ear.read_nonblock(1, exception: false) == '.'
    ensure
      ear.close
    end

    def kill_late
      return unless @stopping

      late = now >= @stopping + @patience
      @started.each_key { |child| Process.kill(late ? :KILL : :TERM, child) } if late || !@told
      @told = true
    end
  end
end
