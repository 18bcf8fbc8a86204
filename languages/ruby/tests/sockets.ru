# frozen_string_literal: true

# Applications that take the client's connection, for tests/tests/languages/ruby.rs.
require 'websocket/driver'

FOLDER = ENV.fetch('FOLDER')

NOTE = lambda do |name, text|
  File.write("#{FOLDER}/#{name}.part", text)
  File.rename("#{FOLDER}/#{name}.part", "#{FOLDER}/#{name}")
end

# A WebSocket that sends back what it gets, in a thread of its own.
class Echo
  attr_reader :env, :url

  def initialize(env)
    @env = env
    @url = "ws://#{env['HTTP_HOST']}#{env['REQUEST_URI']}"
    @io = env['rack.hijack'].call
    @driver = WebSocket::Driver.rack(self, max_length: 16 << 20)
    @driver.on(:message) { |event| event.data.is_a?(String) ? @driver.text(event.data) : @driver.binary(event.data) }
    @driver.on(:close) { |event| NOTE.call('ended', event.code.to_s) && (@closed = true) }
    @driver.start
  end

  def write(bytes)
    @io.write(bytes)
  end

  def run
    @driver.parse(@io.readpartial(65_536)) until @closed
  rescue EOFError, SystemCallError => e
    NOTE.call('ended', e.class.name)
  ensure
    @io.close
  end
end

SWITCH = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\n"
KEPT = [] # rubocop:disable Style/MutableConstant

def copied(io)
  while (bytes = io.readpartial(65_536))
    io.write(bytes)
  end
rescue EOFError
  io.close
end

def taken(env, path)
  case path
  when 'echo' then Thread.new(Echo.new(env), &:run)
  when 'raw' then env['rack.hijack'].call.then { |io| io.write(SWITCH) && Thread.new { copied(io) } }
  when 'plain' then env['rack.hijack'].call.write("HTTP/1.1 404 Not Here\r\nContent-Length: 5\r\nX-Own: a\r\n\r\nplain")
  when 'cut' then env['rack.hijack'].call.tap { |io| io.write("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\ncu") }.close
  when 'nonsense' then env['rack.hijack'].call.tap { |io| io.write("no HTTP at all\r\n\r\n") }.close
  when 'nothing' then env['rack.hijack'].call.close
  when 'silent' then KEPT << env['rack.hijack'].call
  when 'raises' then env['rack.hijack'].call.tap { |io| io.write(SWITCH) }.close || raise('behind the switch')
  when 'dies' then env['rack.hijack'].call.tap { |io| io.write(SWITCH) && io.readpartial(1) } && exit!(7)
  end
end

# ActionCable, if this machine has it.
def cable
  require 'action_cable'
  require 'concurrent'
  require 'logger'
  config = ActionCable::Server::Configuration.new
  config.connection_class = -> { ActionCable::Connection::Base }
  config.cable = { 'adapter' => 'async' }
  config.logger = Logger.new($stderr, level: :warn)
  config.disable_request_forgery_protection = true
  Object.const_set(:ChatChannel, Class.new(ActionCable::Channel::Base) do
    define_method(:subscribed) { stream_from('chat') }
    define_method(:speak) { |data| SERVER.broadcast('chat', data['text']) }
  end)
  ActionCable::Server::Base.new(config: config)
end

SERVER = cable if ENV['CABLE']

run(lambda do |env|
  path = env['PATH_INFO'].delete_prefix('/')
  return SERVER.call(env) if path == 'cable'
  return [200, {}, ["#{path} #{Process.pid} #{env['rack.hijack?']}"]] unless env['rack.hijack?']

  case path
  when 'partial' then [101, { 'Upgrade' => 'echo', 'rack.hijack' => ->(io) { Thread.new { copied(io) } } }, []]
  when 'keeps' then KEPT << env['rack.hijack'] and [200, {}, ['kept']]
  when 'late'
    begin
      KEPT.pop.call
    rescue IOError => e
      [200, {}, [e.message]]
    end
  else taken(env, path) && [-1, {}, []]
  end
end)
