/* Ruby's File objects. Differences between versions of Ruby belong here. */
#include "native.h"

#include <fcntl.h>
#include <ruby/io.h>

static int mode_of(VALUE file)
{
#ifdef HAVE_RB_IO_MODE
	return rb_io_mode(file);
#else
	/* Before Ruby 3.3. */
	rb_io_t *io;

	GetOpenFile(file, io);
	return io->mode;
#endif
}

VALUE native_converts_newlines(VALUE self, VALUE file)
{
	(void)self;
	Check_Type(file, T_FILE);
	return mode_of(file) & FMODE_TEXTMODE ? Qtrue : Qfalse;
}

int duplicate_descriptor(VALUE file)
{
	return fcntl(rb_io_descriptor(file), F_DUPFD_CLOEXEC, 0);
}
