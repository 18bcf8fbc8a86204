/*
 * Runs a command while a process executes step by step (ptrace), and reports what that process
 * executed: instructions in user mode and system calls, by function, and which function called which.
 * Unlike callgrind it knows every system call, and leaves the process as it runs in production,
 * with its sandbox.
 *
 * Usage: steps [--calls] PID COMMAND...
 * With --calls it stops the process at system calls only, which is a thousand times faster.
 * Output, one a line:
 *   total INSTRUCTIONS SYSTEM_CALLS
 *   syscall NUMBER TIMES
 *   function ENTRY OWN_INSTRUCTIONS
 *   libc OFFSET NAME
 *   call ENTRY_OF_CALLER ENTRY TIMES INSTRUCTIONS_WITH_CALLEES
 * An entry is the address to which a call instruction led. The threads of the process run as they
 * would; each has its own stack of calls here, which stack pointers tell apart. The C library chooses
 * functions that copy memory by processor and has no symbols for them: the lines "libc" tell where they are.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS 64
#define DEPTH 512
/* Distinct pairs of functions, and distinct instructions; one request of the front has some 3,000 and 20,000. */
#define SLOTS (1 << 18)

struct frame {
	uint64_t entry, stack, began;
};

struct thread {
	pid_t id;
	struct user_regs_struct at;
	uint64_t steps;
	int depth;
	struct frame frames[DEPTH];
};

struct call {
	uint64_t caller, entry, times, with_callees;
};

struct instruction {
	uint64_t address, is_syscall;
};

static struct thread threads[THREADS];
static struct call calls[SLOTS];
static struct call own[SLOTS];
static struct instruction instructions[SLOTS];
static uint64_t syscalls[1024], total, total_syscalls;
static int calls_only;

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static struct call *slot(struct call *table, uint64_t caller, uint64_t entry)
{
	uint64_t at = ((caller * 31 + entry) * 0x9e3779b97f4a7c15) >> 46;
	while (table[at].entry && (table[at].caller != caller || table[at].entry != entry)) {
		at = (at + 1) % SLOTS;
	}
	table[at].caller = caller;
	table[at].entry = entry;
	return &table[at];
}

static int is_syscall(pid_t thread, uint64_t address)
{
	uint64_t at = (address * 0x9e3779b97f4a7c15) >> 46;
	while (instructions[at].address && instructions[at].address != address) {
		at = (at + 1) % SLOTS;
	}
	if (!instructions[at].address) {
		long code = ptrace(PTRACE_PEEKTEXT, thread, address, 0);
		instructions[at].address = address;
		instructions[at].is_syscall = (code & 0xffff) == 0x050f;
	}
	return instructions[at].is_syscall;
}

static uint64_t entry_of(const struct thread *thread)
{
	return thread->depth ? thread->frames[thread->depth - 1].entry : 1;
}

/* Accounts for the instruction that has led from `thread->at` to `now`. */
static void account(struct thread *thread, const struct user_regs_struct *now)
{
	const struct user_regs_struct *before = &thread->at;

	/* A string instruction traps after each repetition. */
	if (now->rip == before->rip) {
		return;
	}
	total++;
	thread->steps++;
	slot(own, 0, entry_of(thread))->times++;
	if (is_syscall(thread->id, before->rip)) {
		total_syscalls++;
		syscalls[before->rax % 1024]++;
		return;
	}
	int jumps = now->rip < before->rip || now->rip > before->rip + 15;
	while (thread->depth && now->rsp > thread->frames[thread->depth - 1].stack) {
		struct frame *left = &thread->frames[--thread->depth];
		struct call *call = slot(calls, entry_of(thread), left->entry);
		call->times++;
		call->with_callees += thread->steps - left->began;
	}
	if (jumps && now->rsp == before->rsp - 8 && thread->depth < DEPTH) {
		struct frame entered = { now->rip, now->rsp, thread->steps };
		thread->frames[thread->depth++] = entered;
	}
}

static struct thread *find(pid_t id)
{
	for (int i = 0; i < THREADS; i++) {
		if (threads[i].id == id) {
			return &threads[i];
		}
	}
	return NULL;
}

/* Counts the system call that the thread is about to make. */
static void account_for_call(pid_t thread)
{
	struct __ptrace_syscall_info info;
	if (ptrace(PTRACE_GET_SYSCALL_INFO, thread, sizeof info, &info) > 0 && info.op == PTRACE_SYSCALL_INFO_ENTRY) {
		total_syscalls++;
		syscalls[info.entry.nr % 1024]++;
	}
}

static void step(struct thread *thread, int sig)
{
	if (calls_only) {
		ptrace(PTRACE_SYSCALL, thread->id, 0, sig);
	} else if (ptrace(PTRACE_GETREGS, thread->id, 0, &thread->at) < 0 || ptrace(PTRACE_SINGLESTEP, thread->id, 0, sig) < 0) {
		fail("step");
	}
}

/*
 * Detaches from a thread. The trap of its last step may be pending at the stop that was asked for, and would end the process if
 * nothing traced it any more.
 */
static void release(pid_t thread)
{
	for (int asks = 1;;) {
		int status;
		if (asks) {
			ptrace(PTRACE_INTERRUPT, thread, 0, 0);
		}
		if (waitpid(thread, &status, __WALL) != thread || !WIFSTOPPED(status)) {
			return;
		}
		struct __ptrace_peeksiginfo_args pending = { 0, 0, 1 };
		siginfo_t info;
		int is_pending = ptrace(PTRACE_PEEKSIGINFO, thread, &pending, &info) == 1;
		int sig = status >> 16 || WSTOPSIG(status) == SIGTRAP ? 0 : WSTOPSIG(status);
		if (!is_pending) {
			ptrace(PTRACE_DETACH, thread, 0, sig);
			return;
		}
		/* The pending signal stops it next. */
		ptrace(PTRACE_CONT, thread, 0, sig);
		asks = 0;
	}
}

int main(int argc, char **argv)
{
	if (argc > 1 && strcmp(argv[1], "--calls") == 0) {
		calls_only = 1;
		argc--;
		argv++;
	}
	if (argc < 3) {
		fprintf(stderr, "usage: steps [--calls] PID COMMAND...\n");
		return 2;
	}
	char folder[64];
	snprintf(folder, sizeof folder, "/proc/%s/task", argv[1]);
	DIR *tasks = opendir(folder);
	if (!tasks) {
		fail(folder);
	}
	int count = 0;
	for (struct dirent *one; (one = readdir(tasks));) {
		if (one->d_name[0] == '.' || count == THREADS) {
			continue;
		}
		struct thread *thread = &threads[count++];
		thread->id = atoi(one->d_name);
		if (ptrace(PTRACE_SEIZE, thread->id, 0, PTRACE_O_TRACESYSGOOD) < 0 || ptrace(PTRACE_INTERRUPT, thread->id, 0, 0) < 0) {
			fail("cannot trace");
		}
		waitpid(thread->id, NULL, __WALL);
		step(thread, 0);
	}
	closedir(tasks);

	pid_t command = fork();
	if (command == 0) {
		execvp(argv[2], argv + 2);
		_exit(127);
	}
	int status;
	for (pid_t id; (id = waitpid(-1, &status, __WALL)) != command;) {
		struct thread *thread = find(id);
		if (id < 0) {
			fail("wait");
		}
		if (!thread || !WIFSTOPPED(status)) {
			continue;
		}
		int sig = WSTOPSIG(status), event = status >> 16;
		if (sig == (SIGTRAP | 0x80)) {
			account_for_call(id);
			sig = 0;
		} else if (sig == SIGTRAP && !event) {
			struct user_regs_struct now;
			if (ptrace(PTRACE_GETREGS, id, 0, &now) == 0) {
				account(thread, &now);
			}
			sig = 0;
		}
		step(thread, event ? 0 : sig);
	}
	for (int i = 0; i < count; i++) {
		release(threads[i].id);
	}
	printf("total %lu %lu\n", total, total_syscalls);
	for (int i = 0; i < 1024; i++) {
		if (syscalls[i]) {
			printf("syscall %d %lu\n", i, syscalls[i]);
		}
	}
	const char *chosen[] = { "memcpy", "memmove", "memset", "memcmp", "memchr", "bcmp", "strlen" };
	for (unsigned i = 0; i < sizeof chosen / sizeof *chosen; i++) {
		Dl_info info;
		char *address = dlsym(RTLD_DEFAULT, chosen[i]);
		if (dladdr(address, &info)) {
			printf("libc %lx %s\n", (uint64_t)(address - (char *)info.dli_fbase), chosen[i]);
		}
	}
	for (int i = 0; i < SLOTS; i++) {
		if (own[i].entry) {
			printf("function %lx %lu\n", own[i].entry, own[i].times);
		}
		if (calls[i].times) {
			printf("call %lx %lx %lu %lu\n", calls[i].caller, calls[i].entry, calls[i].times, calls[i].with_callees);
		}
	}
	return WEXITSTATUS(status);
}
