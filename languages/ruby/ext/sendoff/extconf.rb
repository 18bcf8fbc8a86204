# frozen_string_literal: true

# Links libsendoff into the extension. A built gem brings the library and its header along, in lib/ beside this file. Another
# one is named by --with-sendoff-dir=DIR, with DIR/include/sendoff.h and DIR/lib/libsendoff_capi.a.
require 'mkmf'

abort 'sendoff runs on Linux only' unless RUBY_PLATFORM.include?('linux')

here = __dir__
include_folder, lib_folder = dir_config('sendoff', "#{here}/libsendoff", "#{here}/libsendoff")
library = "#{lib_folder}/libsendoff_capi.a"
abort "#{library} is missing: languages/ruby/build makes a gem that has it" unless File.exist?(library)

find_header('sendoff.h', include_folder) || abort('sendoff.h is missing')
$CFLAGS += ' -std=gnu11 -D_GNU_SOURCE -fvisibility=hidden -Wall -Wextra -Wno-unused-parameter'
# What the library needs of the system stands behind it.
$LOCAL_LIBS = "#{library} -lgcc_s -lpthread -ldl -lm"
# The guard's thread may outlive the interpreter's end.
$DLDFLAGS += ' -Wl,-z,nodelete,--exclude-libs,ALL'
create_makefile('sendoff/native')
