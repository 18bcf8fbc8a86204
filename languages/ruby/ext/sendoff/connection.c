/* Sendoff::Connection: requests and responses on a connection that a web server has opened. */
#include "native.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

/* libsendoff only queues up to this number of bytes, so the call can keep the GVL. */
#define QUEUED_MAX ((size_t)16 * 1024)

/* Maximum number of bytes of a request body that one read() returns. */
#define READ_MAX ((size_t)256 * 1024)

static void free_connection(void *pointer)
{
	connection *connection = pointer;

	sendoff_worker_free(connection->worker);
	xfree(connection);
}

static const rb_data_type_t connection_type = {
	.wrap_struct_name = "Sendoff::Connection",
	.function = {.dfree = free_connection},
	.flags = RUBY_TYPED_FREE_IMMEDIATELY,
};

static connection *get(VALUE self)
{
	connection *connection;

	TypedData_Get_Struct(self, struct connection, &connection_type, connection);
	return connection;
}

/* The connection, or NULL if it is closed or belongs to the parent process. */
static connection *usable(VALUE self)
{
	connection *connection = get(self);

	return connection->worker && connection->forks == forks() ? connection : NULL;
}

/*
 * A call that runs without the GVL. Ruby skips it while an interrupt is pending; `ran` tells.
 */
typedef struct call {
	connection *connection;
	const void *data;
	size_t len;
	void *buffer;
	ssize_t result;
	bool ran;
} call;

/* Thread#kill and Timeout end a request at once: data in flight on its connection are lost. */
static void interrupt(void *pointer)
{
	connection *connection = pointer;

	sendoff_stop(connection->worker);
	shutdown(connection->fd, SHUT_RDWR);
}

/* Runs `function` without the GVL, to its end. Raises pending exceptions before and after it. */
static ssize_t run(void *(*function)(void *), call *call)
{
	call->ran = false;
	call->connection->queued = QUEUED_MAX;
	while (!call->ran) {
		rb_thread_check_ints();
		rb_thread_call_without_gvl2(function, call, interrupt, call->connection);
	}
	rb_thread_check_ints();
	return call->result;
}

/* True if a call that adds `len` bytes cannot block, since all previous bytes have only been
 * queued. */
static bool is_only_queued(connection *connection, size_t len)
{
	if (len > QUEUED_MAX - connection->queued) {
		return false;
	}
	connection->queued += len;
	return true;
}

/* Sendoff.listen(address, backlog) -> descriptor */
static VALUE native_listen(VALUE self, VALUE address, VALUE backlog)
{
	int fd = sendoff_listen(StringValueCStr(address), NUM2INT(backlog));

	(void)self;
	if (fd < 0) {
		rb_sys_fail_str(address);
	}
	return INT2NUM(fd);
}

/* Sendoff.listener?(descriptor) */
static VALUE native_is_listener(VALUE self, VALUE fd)
{
	(void)self;
	return sendoff_is_listener(NUM2INT(fd)) ? Qtrue : Qfalse;
}

/* Sendoff.end_with_parent: SIGTERM to this process when the thread that forked it ends. */
static VALUE native_end_with_parent(VALUE self)
{
	(void)self;
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	return Qnil;
}

typedef struct acceptance {
	int listener;
	const char *peers;
	connection *connection;
	int error;
} acceptance;

/* True if all parameters of the first request have arrived (FastCGI 1.0, sections 3.3, 3.4). */
static bool request_has_arrived(int fd)
{
	enum { HEADER = 8, PARAMS = 4 };
	unsigned char bytes[16384];
	ssize_t n = recv(fd, bytes, sizeof(bytes), MSG_PEEK | MSG_DONTWAIT);

	for (ssize_t at = 0; at + HEADER <= n;) {
		ssize_t len = bytes[at + 4] << 8 | bytes[at + 5];

		if (bytes[at + 1] == PARAMS && len == 0) {
			return true;
		}
		at += HEADER + len + bytes[at + 6];
	}
	return false;
}

/*
 * Accepts a connection, and its first request if that needs no waiting. (A front that sees its new
 * connection being read has found a free process; otherwise it considers all processes busy. So the
 * thread must not wait for the GVL first.)
 */
static void *accept_without_gvl(void *pointer)
{
	acceptance *acceptance = pointer;
	connection *connection = acceptance->connection;

	connection->fd = sendoff_accept_connection(acceptance->listener, acceptance->peers);
	if (connection->fd >= 0) {
		bool has_arrived = request_has_arrived(connection->fd);

		connection->worker = sendoff_worker_on(connection->fd, SENDOFF_RESPONDER);
		if (connection->worker) {
			sendoff_sends_files(connection->worker);
		}
		if (connection->worker && has_arrived) {
			connection->has_first = sendoff_accept(connection->worker) == 1;
		}
	}
	acceptance->error = errno;
	return NULL;
}

/* Connection.accept(listener, peers) -> a connection, or nil if the thread was interrupted */
static VALUE connection_accept(VALUE class, VALUE listener, VALUE peers)
{
	connection *connection;
	VALUE self = TypedData_Make_Struct(class, struct connection, &connection_type, connection);
	acceptance acceptance = {
		.listener = NUM2INT(listener),
		.peers = NIL_P(peers) ? NULL : StringValueCStr(peers),
		.connection = connection,
		.error = EINTR,
	};

	connection->forks = forks();
	/* The variant that raises nothing, so that an accepted connection is not lost. */
	rb_thread_call_without_gvl2(accept_without_gvl, &acceptance, RUBY_UBF_IO, NULL);
	RB_GC_GUARD(peers);
	if (connection->worker) {
		return self;
	}
	if (acceptance.error == EINTR) {
		return Qnil;
	}
	rb_syserr_fail(acceptance.error, "accept");
}

static void *request_without_gvl(void *pointer)
{
	call *call = pointer;

	call->ran = true;
	call->result = sendoff_accept(call->connection->worker);
	return NULL;
}

/*
 * If a server sends a parameter twice, the second one counts. CGI servers send missing values as
 * empty strings; only a field of the request (HTTP_*) may be empty.
 */
static void add_parameter(VALUE hash, const sendoff_param *param)
{
	VALUE name = rb_interned_str(param->name, (long)param->name_len);

	if (param->value_len == 0 && strncmp(param->name, "HTTP_", strlen("HTTP_")) != 0) {
		rb_hash_delete(hash, name);
	} else {
		rb_hash_aset(hash, name, rb_str_new(param->value, (long)param->value_len));
	}
}

/*
 * next_request -> the parameters as a Hash, after the end of the current response; nil if there
 * will be no other request, or if the thread was interrupted
 */
static VALUE connection_next_request(VALUE self)
{
	connection *connection = usable(self);
	call call = {.connection = connection};
	size_t count;

	if (!connection) {
		return Qnil;
	}
	if (connection->has_first) {
		connection->has_first = false;
		call.ran = true;
		call.result = 1;
	}
	while (!call.ran) {
		rb_thread_check_ints();
		rb_thread_call_without_gvl2(request_without_gvl, &call, interrupt, connection);
	}
	connection->queued = 0;
	if (call.result != 1) {
		return Qnil;
	}
	const sendoff_param *params = sendoff_params(connection->worker, &count);
	VALUE hash = rb_hash_new();

	for (size_t i = 0; i < count; i++) {
		add_parameter(hash, &params[i]);
	}
	return hash;
}

/* stop: next_request returns nil once no request is waiting. A request that has begun is not
 * affected. */
static VALUE connection_stop(VALUE self)
{
	connection *connection = usable(self);

	if (connection) {
		sendoff_stop(connection->worker);
	}
	return Qnil;
}

static void *read_without_gvl(void *pointer)
{
	call *call = pointer;

	call->ran = true;
	call->result = sendoff_read(call->connection->worker, call->buffer, call->len);
	return NULL;
}

/* read(buffer) -> number of body bytes, which replace the buffer's contents: 0 at the end, nil if
 * the body was cut */
static VALUE connection_read(VALUE self, VALUE buffer)
{
	connection *connection = usable(self);

	if (!connection) {
		return Qnil;
	}
	StringValue(buffer);
	rb_str_modify(buffer);
	rb_str_resize(buffer, READ_MAX);
	rb_str_locktmp(buffer);
	call call = {.connection = connection, .buffer = RSTRING_PTR(buffer), .len = READ_MAX};

	while (!call.ran) {
		/* An exception is raised only when the buffer is not locked. */
		rb_thread_call_without_gvl2(read_without_gvl, &call, interrupt, connection);
		if (!call.ran) {
			rb_str_unlocktmp(buffer);
			rb_thread_check_ints();
			rb_str_locktmp(buffer);
		}
	}
	rb_str_unlocktmp(buffer);
	rb_str_set_len(buffer, call.result > 0 ? call.result : 0);
	rb_thread_check_ints();
	return call.result < 0 ? Qnil : LONG2NUM(call.result);
}

static void *head_without_gvl(void *pointer)
{
	call *call = pointer;

	call->ran = true;
	call->result = sendoff_write_head(call->connection->worker, call->data, call->len);
	return NULL;
}

/* head(block) -> true unless the client has gone. The block is without the empty line at its end.
 */
static VALUE connection_head(VALUE self, VALUE block)
{
	connection *connection = usable(self);

	if (!connection) {
		return Qfalse;
	}
	VALUE head = rb_str_dup(StringValue(block));

	rb_str_cat_cstr(head, "\r\n");
	call call = {
		.connection = connection, .data = RSTRING_PTR(head), .len = (size_t)RSTRING_LEN(head)};
	if (is_only_queued(connection, call.len)) {
		head_without_gvl(&call);
	} else {
		run(head_without_gvl, &call);
	}
	RB_GC_GUARD(head);
	return call.result == 0 ? Qtrue : Qfalse;
}

/* Pieces of a body, protected from changes by other threads. */
typedef struct pieces {
	long count;
	VALUE *strings;
} pieces;

static void *write_without_gvl(void *pointer)
{
	call *call = pointer;
	const pieces *pieces = call->data;

	call->ran = true;
	for (long i = 0; i < pieces->count && call->result == 0; i++) {
		VALUE string = pieces->strings[i];

		call->result = sendoff_write(call->connection->worker, RSTRING_PTR(string),
									 (size_t)RSTRING_LEN(string));
	}
	return NULL;
}

/* write(piece...) -> true unless the client has gone */
static VALUE connection_write(int argc, VALUE *argv, VALUE self)
{
	connection *connection = usable(self);

	if (!connection) {
		return Qfalse;
	}
	VALUE room;
	VALUE *strings = ALLOCV_N(VALUE, room, argc > 0 ? argc : 1);

	size_t len = 0;

	for (int i = 0; i < argc; i++) {
		/* Shares the memory of a string that is not frozen. */
		strings[i] = rb_str_new_frozen(StringValue(argv[i]));
		len += (size_t)RSTRING_LEN(strings[i]);
	}
	pieces pieces = {.count = argc, .strings = strings};
	call call = {.connection = connection, .data = &pieces};

	if (is_only_queued(connection, len)) {
		write_without_gvl(&call);
	} else {
		run(write_without_gvl, &call);
	}
	ALLOCV_END(room);
	return call.result == 0 ? Qtrue : Qfalse;
}

static void *flush_without_gvl(void *pointer)
{
	call *call = pointer;

	call->ran = true;
	call->result = sendoff_flush(call->connection->worker);
	return NULL;
}

/* flush -> true unless the client has gone */
static VALUE connection_flush(VALUE self)
{
	call call = {.connection = usable(self)};

	return call.connection && run(flush_without_gvl, &call) == 0 ? Qtrue : Qfalse;
}

typedef struct file_call {
	call call;
	file_part part;
} file_call;

static void *file_without_gvl(void *pointer)
{
	file_call *file = pointer;
	call *call = &file->call;

	call->ran = true;
	call->result = send_file(call->connection->worker, call->data, call->len, &file->part);
	return NULL;
}

static off_t offset_or_none(VALUE number)
{
	return NIL_P(number) ? -1 : NUM2OFFT(number);
}

static VALUE run_file(VALUE pointer)
{
	file_call *file = (file_call *)pointer;

	run(file_without_gvl, &file->call);
	return Qnil;
}

static VALUE close_descriptor(VALUE pointer)
{
	const file_call *file = (const file_call *)pointer;

	if (file->part.fd >= 0) {
		close(file->part.fd);
	}
	return Qnil;
}

/*
 * file(block, source, size, start, length) -> :handed_over, :copied, :failed; nil if nothing was
 * written. `source` is a File or a path. `size` is the number of bytes that the file must have, or
 * nil; without `length` the rest of the file is sent.
 */
static VALUE connection_file(VALUE self, VALUE block, VALUE source, VALUE size, VALUE start,
							 VALUE len)
{
	static const char *const names[] = {
		[FILE_COPIED] = "copied", [FILE_HANDED_OVER] = "handed_over", [FILE_FAILED] = "failed"};
	connection *connection = usable(self);
	bool is_open = RB_TYPE_P(source, T_FILE);

	if (!connection) {
		return Qnil;
	}
	block = rb_str_cat_cstr(rb_str_dup(StringValue(block)), "\r\n");
	VALUE path = is_open ? Qnil : rb_str_new_frozen(rb_get_path(source));
	file_call file = {
		.call = {.connection = connection,
				 .data = RSTRING_PTR(block),
				 .len = (size_t)RSTRING_LEN(block)},
		.part = {.fd = -1,
				 .path = is_open ? NULL : StringValueCStr(path),
				 .size = offset_or_none(size),
				 .start = NUM2OFFT(start),
				 .len = offset_or_none(len)},
	};

	/* Another thread may close the application's descriptor. */
	if (is_open && (file.part.fd = duplicate_descriptor(source)) < 0) {
		return Qnil;
	}
	/* An interrupt is raised as an exception. */
	rb_ensure(run_file, (VALUE)&file, close_descriptor, (VALUE)&file);
	RB_GC_GUARD(block);
	RB_GC_GUARD(path);
	ssize_t result = file.call.result;

	return result == FILE_REFUSED ? Qnil : ID2SYM(rb_intern(names[result]));
}

static void *log_without_gvl(void *pointer)
{
	call *call = pointer;

	call->ran = true;
	sendoff_log(call->connection->worker, call->data, call->len);
	call->result = 0;
	return NULL;
}

/* log(entry), for the server's log -> true if there is a request that the entry can belong to */
static VALUE connection_log(VALUE self, VALUE entry)
{
	connection *connection = usable(self);

	if (!connection) {
		return Qfalse;
	}
	VALUE text = rb_str_new_frozen(StringValue(entry));
	call call = {
		.connection = connection, .data = RSTRING_PTR(text), .len = (size_t)RSTRING_LEN(text)};

	if (is_only_queued(connection, call.len)) {
		log_without_gvl(&call);
	} else {
		run(log_without_gvl, &call);
	}
	RB_GC_GUARD(text);
	return Qtrue;
}

/* explains? -> true if the response is to be explained */
static VALUE connection_explains(VALUE self)
{
	connection *connection = usable(self);

	return connection && sendoff_explains(connection->worker) ? Qtrue : Qfalse;
}

/* explain(text), about the output that follows (docs/handover.md, EXPLAIN). */
static VALUE connection_explain(VALUE self, VALUE text)
{
	connection *connection = usable(self);

	StringValue(text);
	if (connection) {
		sendoff_explain(connection->worker, RSTRING_PTR(text), (size_t)RSTRING_LEN(text));
	}
	return Qnil;
}

static void *finish_without_gvl(void *pointer)
{
	call *call = pointer;

	call->ran = true;
	/* The application may go on: the front sends no other request meanwhile. */
	sendoff_finish(call->connection->worker, 0, 1);
	call->result = 0;
	return NULL;
}

/* finish: ends the response; next_request ends the work on it */
static VALUE connection_finish(VALUE self)
{
	call call = {.connection = usable(self)};

	if (call.connection) {
		run(finish_without_gvl, &call);
	}
	return Qnil;
}

/* tunnel? -> true if the client asks for another protocol, for which tunnel() gives a socket */
static VALUE connection_has_tunnel(VALUE self)
{
	connection *connection = usable(self);

	return connection && sendoff_has_tunnel(connection->worker) ? Qtrue : Qfalse;
}

static void *tunnel_without_gvl(void *pointer)
{
	call *call = pointer;

	call->ran = true;
	call->result = sendoff_tunnel(call->connection->worker);
	return NULL;
}

/*
 * tunnel: ends the request here -> the descriptor of a socket for a response in HTTP/1.1; nil if
 * there is none, or the client has gone
 */
static VALUE connection_tunnel(VALUE self)
{
	call call = {.connection = usable(self), .result = -1};

	if (call.connection) {
		/* No interrupt may come between the call and its result, which would be lost. */
		tunnel_without_gvl(&call);
	}
	return call.result < 0 ? Qnil : INT2NUM((int)call.result);
}

/* cut: closes the connection in the middle of a response, without its end */
static VALUE connection_cut(VALUE self)
{
	connection *connection = usable(self);

	if (connection) {
		shutdown(connection->fd, SHUT_RDWR);
		sendoff_worker_free(connection->worker);
		connection->worker = NULL;
	}
	return Qnil;
}

static void *close_without_gvl(void *worker)
{
	sendoff_worker_close(worker);
	return NULL;
}

/* close: ends the response and closes the connection, which may take 2 s */
static VALUE connection_close(VALUE self)
{
	connection *connection = usable(self);

	if (connection) {
		sendoff_worker *worker = connection->worker;

		/* With the GVL: another thread may call stop(). */
		connection->worker = NULL;
		rb_nogvl(close_without_gvl, worker, NULL, NULL, 0);
	}
	return Qnil;
}

RUBY_FUNC_EXPORTED void Init_native(void)
{
	VALUE module = rb_define_module("Sendoff");
	VALUE class = rb_define_class_under(module, "Connection", rb_cObject);

	count_forks();
	rb_undef_alloc_func(class);
	rb_define_singleton_method(module, "listen", native_listen, 2);
	rb_define_singleton_method(module, "listener?", native_is_listener, 1);
	rb_define_singleton_method(module, "end_with_parent", native_end_with_parent, 0);
	rb_define_singleton_method(module, "converts_newlines?", native_converts_newlines, 1);
	define_fragments(module);
	rb_define_singleton_method(class, "accept", connection_accept, 2);
	rb_define_method(class, "next_request", connection_next_request, 0);
	rb_define_method(class, "stop", connection_stop, 0);
	rb_define_method(class, "read", connection_read, 1);
	rb_define_method(class, "head", connection_head, 1);
	rb_define_method(class, "write", connection_write, -1);
	rb_define_method(class, "flush", connection_flush, 0);
	rb_define_method(class, "file", connection_file, 5);
	rb_define_method(class, "log", connection_log, 1);
	rb_define_method(class, "explains?", connection_explains, 0);
	rb_define_method(class, "explain", connection_explain, 1);
	rb_define_method(class, "finish", connection_finish, 0);
	rb_define_method(class, "tunnel?", connection_has_tunnel, 0);
	rb_define_method(class, "tunnel", connection_tunnel, 0);
	rb_define_method(class, "cut", connection_cut, 0);
	rb_define_method(class, "close", connection_close, 0);
}
