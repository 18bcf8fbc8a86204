# frozen_string_literal: true

# Bodies that are open files, for tests/tests/languages/ruby/open_files.rs.
require 'delegate'
require 'tempfile'

# Bodies that are open files: each method makes one. PLACE holds the files.
module Opened
  PLACE = ENV.fetch('FOLDER')
  TEXT = (0...9000).map { |line| "caf\u00e9 #{line}\r\n" }.join.freeze

  # A file with an `each` of its own.
  class Own < File
    def each
      yield 'own'
    end
  end

  module_function

  # Positions: from the start, in the middle, at the end, behind it.
  def plain = file
  def sought = file { |opened| opened.seek(60_000) }
  def at_end = file(&:read)
  def behind_end = file { |opened| opened.seek(1_000_000) }
  def shared_position = file { |opened| opened.dup.seek(70_000) }

  # Wrappers that delegate.
  def proxied = Rack::BodyProxy.new(Rack::BodyProxy.new(sought) { nil }) { nil }
  def delegated = SimpleDelegator.new(sought)
  def temporary = written.tap { |opened| opened.seek(60_000) }
  def temporary_at_end = written
  def temporary_unlinked = written.tap(&:rewind).tap(&:unlink)
  def temporary_proxied = Rack::BodyProxy.new(temporary) { nil }

  # Read ahead, pushed back.
  def begun = file { |opened| opened.read(10) }
  def begun_with_line = file(&:gets)
  def begun_and_sought = file { |opened| opened.gets && opened.seek(20_000) }
  def byte_pushed_back = file { |opened| opened.read(5) && opened.ungetbyte(65) }
  def byte_pushed_before = file { |opened| opened.ungetbyte(65) }
  def character_pushed_back = file('r') { |opened| opened.read(5) && opened.ungetc("\u00e9") }

  # Modes that convert.
  def transcoded = file('r:ISO-8859-1:UTF-8')
  def transcoded_later = file('rb') { |opened| opened.set_encoding('ISO-8859-1', 'UTF-8') }
  def utf16 = file('rb:UTF-16LE:UTF-8', TEXT.encode('UTF-16LE'))
  def utf16_as_it_is = file('rb:UTF-16LE', TEXT.encode('UTF-16LE'))
  def text = file('rt')
  def newlines = File.open(path(TEXT), 'r', universal_newline: true)
  def binary_again = file('rt', &:binmode)
  def byte_order_mark = file('r:BOM|UTF-8', "\ufeff#{TEXT}")

  # Files that cannot be read, or have no size.
  def closed = file(&:close)
  def closed_proxied = Rack::BodyProxy.new(closed) { nil }
  def write_only = File.open(path, 'ab')
  def process_file = File.open('/proc/cpuinfo')
  def kernel_file = File.open('/sys/devices/system/cpu/online')
  def own_each = Own.open(path)

  # Names that lead elsewhere, or nowhere.
  def renamed = file { |opened| File.binwrite("#{opened.path}+", 'x' * 99_000) && File.rename("#{opened.path}+", opened.path) }
  def deleted = file { |opened| File.unlink(opened.path) }
  def unnamed = File.open(PLACE, File::RDWR | File::TMPFILE).tap { |opened| opened.write(TEXT) && opened.rewind }
  def appended = file { |opened| opened.seek(10_000) && File.binwrite(opened.path, 'end', mode: 'ab') }
  def moved_away = Dir.chdir(PLACE) { File.open(File.basename(path)) }

  def path(content = TEXT)
    @number = @number.to_i + 1
    "#{PLACE}/opened-#{Process.pid}-#{@number}".tap { |name| File.binwrite(name, content) }
  end

  def file(mode = 'rb', content = TEXT)
    File.open(path(content), mode).tap { |opened| yield(opened) if block_given? }
  end

  def written = Tempfile.new.tap { |opened| opened.binmode.write(TEXT) }
end
