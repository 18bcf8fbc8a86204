# frozen_string_literal: true

# Every wait of a connection must end when its thread is interrupted, and let other threads run
# meanwhile. This script plays the web server; a wait that goes on makes `join` return nil. Prints
# "done".
require 'sendoff'
require 'socket'
require 'timeout'

PATH = ARGV.fetch(0)
LISTENER = Sendoff.listen(PATH, 5)
LIMIT = 20

def record(type, content)
  [1, type, 1, content.bytesize, 0, 0].pack('CCnnCC') + content
end

def parameters(fields)
  content = fields.map { |name, value| [name.bytesize, value.bytesize].pack('CC') + name + value }.join
  record(4, content) + record(4, '')
end

BEGIN_REQUEST = record(1, [1, 1, 0, 0, 0, 0, 0].pack('nCCCCCC'))

def client(*records)
  UNIXSocket.new(PATH).tap { |socket| socket.write(BEGIN_REQUEST, *records) }
end

def accept
  Sendoff::Connection.accept(LISTENER, nil)
end

# Runs a block in a thread until it waits, and kills it.
def kill_in_wait(name)
  thread = Thread.new do
    yield
    raise "#{name} did not wait"
  end
  # A thread without the GVL in a wait is in state "sleep".
  Timeout.timeout(LIMIT) { Thread.pass until thread.status == 'sleep' && thread[:waits] }
  thread.kill
  thread.join(LIMIT) or abort "#{name} goes on"
end

def waits
  Thread.current[:waits] = true
  yield
end

kill_in_wait('accept') { waits { accept } }

thread = Thread.new { waits { accept } }
Timeout.timeout(LIMIT) { Thread.pass until thread.status == 'sleep' }
thread.wakeup
abort 'accept returns no nil' unless thread.join(LIMIT) && thread.value.nil?

one = client
kill_in_wait('next_request') do
  connection = accept
  waits { connection.next_request }
end

two = client(parameters('REQUEST_METHOD' => 'POST', 'CONTENT_LENGTH' => '100'), record(5, 'abc'))
connection = accept
abort 'no request' unless connection.next_request == { 'REQUEST_METHOD' => 'POST', 'CONTENT_LENGTH' => '100' }
buffer = String.new
abort 'no body' unless connection.read(buffer) == 3 && buffer == 'abc'
begin
  Timeout.timeout(0.1) { connection.read(buffer) }
  abort 'read did not wait'
rescue Timeout::Error
  buffer << 'unlocked'
end
connection.cut

three = client(parameters('REQUEST_METHOD' => 'GET'), record(5, ''))
count = 0
kill_in_wait('write') do
  connection = accept
  connection.next_request
  connection.head("Status: 200\r\n")
  waits { count += 1 while connection.write('x' * 1_000_000) }
end
abort 'write did not wait' if count > 10

[one, two, three].each(&:close)
puts 'done'
