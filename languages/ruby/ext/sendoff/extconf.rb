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
$CFLAGS += ' -std=gnu11 -D_GNU_SOURCE -fvisibility=hidden -Wall -Wextra -Wno-unused-parameter'
# The system libraries that the library needs must follow it.
$LOCAL_LIBS = "#{library} -lgcc_s -lpthread -ldl -lm"
# The guard's thread may outlive the interpreter.
$DLDFLAGS += ' -Wl,-z,nodelete,--exclude-libs,ALL'
create_makefile('sendoff/native')
