# frozen_string_literal: true

module Sendoff
  # The listening socket that web servers connect to.
  class Listener
    # Maximum number of connections in the backlog; the kernel's limit is net.core.somaxconn.
    BACKLOG = 1024

    # Takes descriptor 0, which is the listening socket if a web server or a supervisor has started
    # the program (FastCGI 1.0, section 2.2). The socket gets another number, because programs
    # started by the application use descriptor 0 as standard input.
    def self.inherited
      return unless Sendoff.listener?(0)

      moved = IO.for_fd(0, autoclose: false).dup
      moved.autoclose = false
      $stdin.reopen(File::NULL)
      new(moved.fileno, 'descriptor 0', nil)
    end

    # Opens `unix:/path`, `/path` or `host:port`. `mode`: permissions of a UNIX socket.
    def self.open(address, mode: nil)
      path = address.delete_prefix('unix:') if address.start_with?('unix:', '/')
      descriptor = Sendoff.listen(path || address, BACKLOG)
      File.chmod(mode, path) if path && mode
      new(descriptor, address, path && File.expand_path(path))
    end

    attr_reader :descriptor

    def initialize(descriptor, name, path)
      @descriptor = descriptor
      @name = name
      @path = path
      @owner = Process.pid
    end

    def to_s
      @name
    end

    # Removes a UNIX socket that this process has created.
    def remove
      File.unlink(@path) if @path && @owner == Process.pid
    rescue Errno::ENOENT
      nil
    end
  end
end
