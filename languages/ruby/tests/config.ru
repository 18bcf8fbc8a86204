# frozen_string_literal: true

# The application for tests/tests/languages/ruby.rs. LINT wraps it in Rack::Lint, FOLDER holds its files.
require 'English'
require 'rack'
require_relative 'opened'

FOLDER = ENV.fetch('FOLDER')
FILES = Rack::Files.new(FOLDER)

# Bytes that depend on their position.
def pattern(size)
  (0...256).map(&:chr).join.b.then { |row| (row * ((size / 256) + 1)).byteslice(0, size) }
end

# A body that notes when it is closed.
class Noted
  def initialize(pieces, note = nil, &each)
    @pieces = pieces
    @note = note
    @each = each
  end

  def each(&block)
    @pieces.each(&block)
    @each&.call(block)
  end

  def close
    File.write("#{FOLDER}/#{@note}", 'closed') if @note
  end
end

# A body whose `close` runs a block.
class Closing
  def initialize(body, &close)
    @body = body
    @close = close
  end

  def each(&block) = @body.each(&block)

  def close = @close.call
end

# The same with pieces that all exist.
class Pieces < Closing
  def to_ary = @body
end

# A body that is a file. `each` sends something else, to show which of them was used.
class Named
  attr_reader :to_path

  def initialize(path, instead)
    @to_path = path
    @instead = instead
  end

  def each
    yield @instead
  end
end

def environment(env)
  wanted = %w[REQUEST_METHOD SCRIPT_NAME PATH_INFO QUERY_STRING REQUEST_PATH REQUEST_URI CONTENT_TYPE CONTENT_LENGTH
              SERVER_PROTOCOL rack.url_scheme rack.run_once]
  lines = env.select { |name, _| wanted.include?(name) || (name.start_with?('HTTP_') && name != 'HTTP_HOST') }
  lines = lines.map do |name, value|
    encoding = value.encoding if value != '' && name =~ /\AHTTP_(?!VERSION)|PATH|QUERY/
    "#{name}=#{value.inspect} #{encoding}\n"
  end
  [200, { 'Content-Type' => 'text/plain' }, [lines.sort.join]]
end

def echo(env)
  input = env['rack.input']
  first = input.read.to_s
  # Rack::Lint of Rack 3 hides it.
  input.rewind if input.respond_to?(:rewind)
  again = input.read(10)
  digest = first.unpack('C*').each_with_index.sum { |byte, place| byte * (place % 251) }
  [200, { 'Content-Type' => 'text/plain' }, ["#{first.bytesize} #{digest} #{again.inspect} #{input.read(0).inspect}"]]
end

def headers
  [200,
   { 'Content-Type' => 'text/plain', 'Set-Cookie' => "a=1; path=/\nb=2", 'X-Empty' => '', 'Location' => '/elsewhere',
     'X-Latin' => "caf\xe9".b, 'Content-Length' => '0' },
   []]
end

def kinds(name, size)
  plain = { 'Content-Type' => 'application/octet-stream' }
  known = plain.merge('Content-Length' => size.to_s)
  pieces = pattern(size).scan(/.{1,7001}/mn)
  case name
  when 'array' then [200, plain, pieces]
  when 'string' then [200, known, [pattern(size)]]
  when 'each' then [200, plain, Noted.new(pieces)]
  when 'length' then [200, known, Noted.new(pieces)]
  when 'path' then File.binwrite("#{FOLDER}/path-#{size}", pattern(size)) && [200, known, Named.new("#{FOLDER}/path-#{size}", 'each')]
  when 'chunked'
    body = pieces.map { |piece| "#{piece.bytesize.to_s(16)}\r\n#{piece}\r\n" } << "0\r\n\r\n"
    [200, plain.merge('Transfer-Encoding' => 'chunked'), Noted.new(body)]
  end
end

# A child that comes back out of the application in this way.
def forked(way)
  child = fork
  if child.nil?
    exit(7) if way == 'exit'
    raise 'in the child' if way == 'raise'
    return 'child'
  end
  Process.wait(child)
  "the child ended with #{$CHILD_STATUS.exitstatus}"
end

# The signal that has ended a child that got this one.
def signalled(name)
  ear, mouth = IO.pipe
  child = fork do
    mouth.write('r')
    sleep(60)
  end
  ear.read(1)
  Process.kill(name, child)
  Process.wait(child)
  "the child was ended by SIG#{Signal.signame($CHILD_STATUS.termsig || 0)}"
end

# What `close` does.
def closing(way)
  case way
  when 'raise' then raise 'in close'
  when 'wait' then File.write("#{FOLDER}/waited", File.read("#{FOLDER}/go"))
  when 'exit' then exit!(9)
  end
end

# Bodies that fail in `close`, or take long there.
def close_page(kind, way)
  plain = { 'Content-Type' => 'text/plain' }
  close = -> { closing(way) }
  case kind
  when 'each' then [200, plain, Closing.new(%w[begun end], &close)]
  when 'length' then [200, plain.merge('Content-Length' => '8'), Closing.new(%w[begun end], &close)]
  when 'array' then [200, plain, Pieces.new(%w[begun end], &close)]
  when 'proxy' then [200, plain.merge('Content-Length' => '8'), Rack::BodyProxy.new(%w[begun end], &close)]
  when 'fails' then [200, plain, Closing.new(Enumerator.new { |to| (to << 'begun') && raise('in each') }, &close)]
  when 'file'
    path = "#{FOLDER}/close-file"
    File.binwrite(path, pattern(100_000)) unless File.exist?(path)
    [200, plain.merge('Content-Length' => '100000'), Rack::BodyProxy.new(Named.new(path, 'each'), &close)]
  end
end

# Paths with a page of their own.
def page(env, path, rest)
  plain = { 'Content-Type' => 'text/plain' }
  case path
  when 'env' then environment(env)
  when 'echo' then echo(env)
  when 'headers' then headers
  when 'arrays' then [200, plain.merge('X-Many' => %w[one two]), ['Rack 3']]
  when 'status' then [rest.to_i, rest == '204' || rest == '304' ? {} : plain, []]
  when 'pid' then [200, plain, [Process.pid.to_s]]
  when 'raise' then raise 'a mistake in the application'
  when 'each-raise' then [200, plain, Noted.new(['begun'], 'each-raise') { raise 'in the middle' }]
  when 'length-raise'
    [200, plain.merge('Content-Length' => '10'), Noted.new(['begun'], 'length-raise') { raise 'in the middle' }]
  when 'bad-header' then [200, { 'X-Bad' => "a\r\nX-Forged: 1" }, ['body']]
  when 'kill' then Thread.current.kill
  when 'exit' then exit!(9)
  when 'fork' then [200, plain, [forked(rest)]]
  when 'signal' then [200, plain, [signalled(rest)]]
  when 'gone' then [200, plain, Named.new("#{FOLDER}/gone", 'from each')]
  when 'wrong-size'
    File.write("#{FOLDER}/wrong-size", 'x' * 20_000)
    [200, plain.merge('Content-Length' => '9'), Named.new("#{FOLDER}/wrong-size", 'from each')]
  when 'streaming' then [200, plain, ->(stream) { stream.write('first ') && stream << 'second' and stream.close }]
  when 'hijack'
    # Written by another thread, after the return of the callable.
    writer = ->(io) { Thread.new { io.write('first ') && io << 'second' and io.flush.close } }
    [200, plain.merge('rack.hijack' => writer), Noted.new([])]
  when 'seeked', 'seeked-length'
    file = File.open("#{FOLDER}/seeked", 'rb').tap { |opened| opened.seek(rest.to_i) }
    left = [file.size - file.pos, 0].max.to_s
    [200, path == 'seeked' ? plain : plain.merge('Content-Length' => left), file]
  when 'opened' then [200, plain, Opened.public_send(rest)]
  when 'opened-each'
    body = Opened.public_send(rest)
    [200, plain, Closing.new(body) { body.close }]
  when 'wait' then [200, plain, Noted.new(['first ']) { |block| block.call(File.read("#{FOLDER}/go")) }]
  when 'late' then [200, plain, Noted.new([]) { |block| block.call(File.read("#{FOLDER}/go")) }]
  when 'late-call' then [200, plain, ->(stream) { stream.write(File.read("#{FOLDER}/go")) && stream.close }]
  when 'late-hijack'
    [200, plain.merge('rack.hijack' => ->(io) { io.write(File.read("#{FOLDER}/go")) && io.close }), Noted.new([])]
  when 'endless' then [200, plain, Noted.new([], 'endless') { |block| loop { block.call('x' * 10_000) } }]
  when 'events' then [200, plain, Noted.new([], 'events') { |block| loop { block.call("data: x\n\n") && sleep(0.02) } }]
  when 'finished'
    env['rack.response_finished'] << ->(_, status, *) { File.write("#{FOLDER}/finished", status.to_s) }
    [200, plain, ['ok']]
  when 'log'
    env['rack.errors'].write('a line in ')
    env['rack.errors'].puts('two pieces')
    env['rack.errors'].flush
    [200, plain, ['logged']]
  else [404, plain, ['nothing']]
  end
end

# Headers as Rack 3 wants them.
class Lowered
  def initialize(app) = @app = app

  def call(env)
    status, headers, body = @app.call(env)
    lowered = headers.to_h do |name, value|
      [name.downcase, value.is_a?(String) && value.include?("\n") ? value.split("\n") : value]
    end
    [status, lowered, body]
  end
end

use Rack::Lint if ENV['LINT']
use Lowered if ENV['LINT'] && Rack.release.to_i >= 3
run(lambda do |env|
  _, path, rest = env['PATH_INFO'].split('/', 3)
  return FILES.call(env.merge('PATH_INFO' => "/#{rest}")) if path == 'files'

  if path == 'proxied'
    status, headers, body = FILES.call(env.merge('PATH_INFO' => "/#{rest}"))
    return [status, headers, Rack::BodyProxy.new(Rack::BodyProxy.new(body) { nil }) { nil }]
  end
  return [200, {}, Named.new("#{FOLDER}/#{rest}", 'each')] if path == 'unannounced'

  return close_page(*rest.split('/')) if path == 'close'

  kinds(path, rest.to_i) || page(env, path, rest)
end)
