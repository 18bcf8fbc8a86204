# frozen_string_literal: true

require 'etc'

module Sendoff
  # The handler of `rackup -s sendoff`.
  module Handler
    # Default number of threads per process.
    THREADS = 3
    # Default time limit for open requests when the server stops, in seconds.
    STOP_TIMEOUT = 30

    # Serves the application until a signal stops it.
    def self.run(app, **options)
      listener = listener(options)
      Sendoff.share_fragments
      processes = number(options, :workers, Etc.nprocessors)
      threads = number(options, :threads, THREADS, least: 1)
      patience = number(options, :stop_timeout, STOP_TIMEOUT)
      new_worker = -> { Worker.new(app, listener, threads: threads, processes: processes) }
      @running = processes.zero? ? new_worker.call : Master.new(processes, patience: patience, &new_worker)
      yield @running if block_given?
      warn "sendoff: FastCGI on #{listener}, #{processes} processes, #{threads} threads each"
      processes.zero? ? run_alone(@running) : @running.run
    ensure
      listener&.remove
    end

    # Called by rackup at Ctrl-C, unless the server has installed handlers of its own.
    def self.shutdown
      @running&.stop
    end

    def self.valid_options
      {
        'bind=ADDRESS' => 'unix:/path, or host:port (default: descriptor 0 if it is a listening socket, else Host and Port)',
        'mode=MODE' => 'permissions of the UNIX socket, octal, such as 0660',
        'workers=N' => 'processes (default: the number of processors; 0: the first process serves)',
        'threads=N' => "threads of each process (default: #{THREADS})",
        'stop_timeout=SECONDS' => "time for open requests at the end (default: #{STOP_TIMEOUT})"
      }
    end

    def self.listener(options)
      mode = options[:mode] && Integer(options[:mode].to_s, 8)
      return Listener.open(options[:bind].to_s, mode: mode) if options[:bind]

      Listener.inherited || Listener.open("#{options[:Host] || 'localhost'}:#{options[:Port] || 9292}")
    end

    def self.number(options, name, default, least: 0)
      value = Integer(options.fetch(name, default).to_s, 10)
      raise ArgumentError, "#{name} must be at least #{least}" if value < least

      value
    end

    def self.run_alone(worker)
      worker.stop_by(Master::STOP_SIGNALS)
      worker.run
    end

    private_class_method :listener, :number, :run_alone
  end
end
