/*
 * The signal handlers of a worker that is stuck or crashes: they write where its script is and end
 * the process. After a crash they also name the extension whose code was running; this works in the
 * master too, while it loads extensions.
 *
 * The handlers may interrupt anything, including PHP's allocator. They only read PHP's structures,
 * write to static memory, and call write(2) and _exit(2). A structure may be in the middle of a
 * change; if reading it crashes the handler, the worker ends as intended, and only the backtrace is
 * lost.
 */
#include "php_sendoff.h"
#include "php_main.h"
#include "zend_execute.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <signal.h>
#include <ucontext.h>
#include <unistd.h>

/* Endless recursion fills the stack with frames; the innermost ones show the cause. */
#define MAX_FRAMES 64

/* Written by one write(2), so that no thread or child of the worker writes between its lines. */
static char text[16384];
static size_t text_len;

static void append(const char *part, size_t len)
{
	size_t room = sizeof(text) - text_len;
	if (len > room) {
		len = room;
	}
	memcpy(text + text_len, part, len);
	text_len += len;
}

#define APPEND(literal) append(literal, sizeof(literal) - 1)

static void append_number(unsigned long number)
{
	char digits[24];
	size_t at = sizeof(digits);
	do {
		digits[--at] = (char)('0' + number % 10);
		number /= 10;
	} while (number);
	append(digits + at, sizeof(digits) - at);
}

/* Text from a client: control characters could forge lines of the log. */
static void append_printable(const char *part)
{
	for (; *part; part++) {
		char c = (unsigned char)*part < ' ' || *part == 0x7f ? '?' : *part;
		append(&c, 1);
	}
}

static void append_request(void)
{
	const char *uri = SG(request_info).request_uri;
	const char *query = SG(request_info).query_string;

	if (SG(request_info).request_method && uri) {
		APPEND(" in ");
		append_printable(SG(request_info).request_method);
		APPEND(" ");
		append_printable(uri);
		if (query && *query) {
			APPEND("?");
			append_printable(query);
		}
		const char *id = SENDOFF_PARAM("REQUEST_ID");
		if (id) {
			APPEND(" [");
			append_printable(id);
			APPEND("]");
		}
	}
}

static void append_function(const zend_function *function)
{
	const zend_class_entry *scope = function->common.scope;

	if (!function->common.function_name) {
		APPEND("{main}");
		return;
	}
	if (scope && scope->name) {
		append(ZSTR_VAL(scope->name), ZSTR_LEN(scope->name));
		if (function->common.fn_flags & ZEND_ACC_STATIC) {
			APPEND("::");
		} else {
			APPEND("->");
		}
	}
	append(ZSTR_VAL(function->common.function_name), ZSTR_LEN(function->common.function_name));
	APPEND("()");
}

/*
 * The instruction that the interpreter is executing, if it can be known. The interpreter keeps it
 * in a register (ZEND_VM_IP_GLOBAL_REG, Zend/zend_execute.c) and stores it to the frame only before
 * code that may read it, which a loop without calls never reaches.
 */
static const zend_op *current_instruction(const ucontext_t *context)
{
#if defined(__x86_64__)
	return (const zend_op *)context->uc_mcontext.gregs[REG_R15];
#elif defined(__aarch64__)
	return (const zend_op *)context->uc_mcontext.regs[28];
#else
	(void)context;
	return NULL;
#endif
}

static bool is_in(const zend_op *instruction, const zend_op_array *code)
{
	return instruction >= code->opcodes && instruction < code->opcodes + code->last;
}

/* Appends the file and the line of a frame of the script. */
static void append_place(const zend_execute_data *frame, const zend_op *current)
{
	const zend_op_array *code = &frame->func->op_array;
	/* During a call the register may hold any value. JIT code does not always keep the frame's
	 * opline up to date. */
	const zend_op *instruction = is_in(current, code) ? current : frame->opline;

	if (code->filename) {
		APPEND(" at ");
		append(ZSTR_VAL(code->filename), ZSTR_LEN(code->filename));
	}
	if (is_in(instruction, code)) {
		APPEND(":");
		append_number(instruction->lineno);
	}
}

static void append_frames(const zend_op *current)
{
	const zend_execute_data *frame = EG(current_execute_data);
	unsigned long number = 0;

	for (; frame && number < MAX_FRAMES; frame = frame->prev_execute_data) {
		/* Frames without a function are the engine's own. */
		if (!frame->func) {
			continue;
		}
		APPEND("\n  #");
		append_number(number++);
		APPEND(" ");
		append_function(frame->func);
		if (ZEND_USER_CODE(frame->func->type)) {
			append_place(frame, number == 1 ? current : NULL);
		}
	}
	if (frame) {
		APPEND("\n  ...");
	}
}

/*
 * Writes the text from an offset on with a line break at its end, even if the text was truncated.
 */
static void write_text(size_t from)
{
	if (text_len == sizeof(text)) {
		text_len--;
	}
	APPEND("\n");
	php_ignore_value(write(STDERR_FILENO, text + from, text_len - from));
}

/* The worker that installed the handlers. */
static pid_t worker;

/*
 * A child that a script has started has the worker's handlers until it executes its program. In
 * such a child this function gives the signal its default effect and returns true.
 * Async-signal-safe.
 */
bool sendoff_is_child(int signo)
{
	if (!worker || getpid() == worker) {
		return false;
	}
	signal(signo, SIG_DFL);
	/* Delivered when the handler returns. */
	kill(getpid(), signo);
	return true;
}

static void on_stuck(int signo, siginfo_t *info, void *context)
{
	if (sendoff_is_child(signo)) {
		return;
	}
	(void)info;
	text_len = 0;
	/* Between requests no script is running. */
	if (EG(current_execute_data)) {
		APPEND("it is ended");
		append_request();
		append_frames(current_instruction(context));
		write_text(0);
	}
	_exit(0);
}

void sendoff_backtrace_on(int signo)
{
	struct sigaction action = {0};
	worker = getpid();
	sigfillset(&action.sa_mask);
	action.sa_flags = SA_SIGINFO;
	action.sa_sigaction = on_stuck;
	sigaction(signo, &action, NULL);
}

/* True if the library is an extension, i.e. not PHP, the C library or the vDSO. */
static bool is_extension(const char *library)
{
	static const char *const others[] = {"libphp",   "libc.",    "libc-",
										 "ld-linux", "libgcc_s", "linux-vdso"};
	const char *slash = strrchr(library, '/');
	const char *name = slash ? slash + 1 : library;

	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
		if (!strncmp(name, others[i], strlen(others[i]))) {
			return false;
		}
	}
	return true;
}

/* Appends the library of the innermost function on the stack that belongs to an extension. */
static void append_extension(void)
{
	void *calls[MAX_FRAMES];
	int count = backtrace(calls, MAX_FRAMES);
	Dl_info own, php;

	/* Recognises programs by their addresses: the process title overwrites their file name. */
	if (!dladdr((void *)is_extension, &own) || !dladdr((void *)php_request_startup, &php)) {
		return;
	}
	for (int i = 0; i < count; i++) {
		Dl_info found;
		if (dladdr(calls[i], &found) && found.dli_fbase != own.dli_fbase &&
			found.dli_fbase != php.dli_fbase && found.dli_fname && is_extension(found.dli_fname)) {
			APPEND(" in ");
			append_printable(found.dli_fname);
			return;
		}
	}
}

/*
 * On return the faulting instruction runs again, without a handler (SA_RESETHAND), and ends the
 * process.
 */
static void on_crash(int signo, siginfo_t *info, void *context)
{
	if (sendoff_is_child(signo)) {
		return;
	}
	text_len = 0;
	if (sendoff_php_worker) {
		APPEND("it crashes (signal ");
	} else {
		APPEND("sendoff-php: PHP crashes while it starts (signal ");
	}
	append_number((unsigned long)signo);
	APPEND(")");
	if (!sendoff_php_worker && EG(current_module) && EG(current_module)->name) {
		APPEND(": the extension ");
		append_printable(EG(current_module)->name);
	}
	append_extension();
	append_request();
	/* Reading the frames may crash again. */
	write_text(0);
	text_len = 0;
	if (sendoff_php_worker && EG(current_execute_data)) {
		append_frames(current_instruction(context));
		/* Skips the line break that begins the first frame. */
		write_text(MIN(text_len, 1));
	}
	/* A signal that a process has sent, e.g. by abort(3), does not recur by itself. */
	if (info->si_code <= 0) {
		raise(signo);
	}
}

static const int crashes[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};

void sendoff_crashes_on(void)
{
	struct sigaction action = {0};
	void *loaded[1];

	/* The first call of backtrace(3) loads libgcc, which a signal handler must not do. */
	backtrace(loaded, 1);
	sigemptyset(&action.sa_mask);
	/* SA_ONSTACK: after endless recursion the normal stack is full. */
	action.sa_flags = SA_SIGINFO | SA_RESETHAND | SA_ONSTACK | SA_NODEFER;
	action.sa_sigaction = on_crash;
	for (size_t i = 0; i < sizeof(crashes) / sizeof(crashes[0]); i++) {
		sigaction(crashes[i], &action, NULL);
	}
}

void sendoff_crashes_off(void)
{
	for (size_t i = 0; i < sizeof(crashes) / sizeof(crashes[0]); i++) {
		signal(crashes[i], SIG_DFL);
	}
}
