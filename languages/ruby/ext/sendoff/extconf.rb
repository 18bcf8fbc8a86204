# frozen_string_literal: true

# Links libsendoff into the extension. A built gem contains the library and its header, in lib/
# beside this file. --with-sendoff-dir=DIR selects another one, with DIR/include/sendoff.h and
# DIR/lib/libsendoff_capi.a.
require 'mkmf'

abort 'sendoff runs on Linux only' unless RUBY_PLATFORM.include?('linux')

here = __dir__
include_folder, lib_folder = dir_config('sendoff', "#{here}/libsendoff", "#{here}/libsendoff")
library = "#{lib_folder}/libsendoff_capi.a"
abort "#{library} is missing: languages/ruby/build makes a gem that has it" unless File.exist?(library)

find_header('sendoff.h', include_folder) || abort('sendoff.h is missing')
# With functions missing the extension would be linked all the same, and fail at its first start.
symbols = IO.popen(['nm', '--defined-only', library], err: File::NULL, &:read)
abort "#{library} is no static library" unless $?.success? # rubocop:disable Style/SpecialVars
defined = symbols.scan(/ T (sendoff_\w+)$/).flatten
missing = File.read("#{include_folder}/sendoff.h").scan(/^\w[^;#]*?\b(sendoff_\w+)\(/).flatten - defined
unless missing.empty?
  abort "#{library} is older than sendoff.h: it lacks #{missing.join(', ')}. " \
        'Build it anew: cargo build --release --package sendoff-capi'
end

# Ruby 3.3 has it, and later ones hide the field that it reads.
have_func('rb_io_mode', 'ruby/io.h')

$CFLAGS += ' -std=gnu11 -D_GNU_SOURCE -fvisibility=hidden -Wall -Wextra -Wno-unused-parameter'
# The system libraries that the library needs must follow it.
$LOCAL_LIBS = "#{library} -lgcc_s -lpthread -ldl -lm"
# The guard's thread may outlive the interpreter.
$DLDFLAGS += ' -Wl,-z,nodelete,--exclude-libs,ALL'
create_makefile('sendoff/native')
