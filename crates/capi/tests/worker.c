/* A worker in C that calls every function of sendoff.h. Arguments: a link, the guard, a file to
 * send. */
#define _GNU_SOURCE
#include "sendoff.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(what)                                                \
	do {                                                           \
		if (!(what)) {                                             \
			fprintf(stderr, "worker.c:%d: %s\n", __LINE__, #what); \
			exit(1);                                               \
		}                                                          \
	} while (0)

static sendoff_worker *worker;

static void stop(int signal_number)
{
	(void)signal_number;
	sendoff_stop(worker);
}

static int hold(const char *path, void *addr, uint64_t claimed_size, uint32_t *file)
{
	struct stat st;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	CHECK(fd >= 0 && fstat(fd, &st) == 0);
	return sendoff_file_hold(worker, fd, addr, claimed_size, &st.st_mtim, &st.st_ctim, file);
}

static void respond_with_blob(void)
{
	uint32_t blob;
	const void *contents;
	char text[] = "constant";

	CHECK(sendoff_blob_store(worker, text, 0, &blob, NULL) == -1 && errno == EINVAL);
	CHECK(sendoff_blob_store(worker, text, 8, &blob, NULL) == 0);
	sendoff_blob_drop(worker, blob);
	CHECK(sendoff_blob_store(worker, text, 8, &blob, &contents) == 0);
	text[0] = 'X';
	CHECK(memcmp(contents, "constant", 8) == 0);
	CHECK(sendoff_write_file(worker, blob, 0, 8) == 0);
	CHECK(sendoff_write_file(worker, blob, 1, 8) == -1);
}

static void respond(uint32_t file, uint64_t size)
{
	size_t count, len = 99;
	char body[8];
	const sendoff_param *params = sendoff_params(worker, &count);

	CHECK(count == 2 && strcmp(params[1].name, "GREETING") == 0 && params[1].name_len == 8);
	CHECK(strcmp(params[1].value, "hello") == 0 && params[1].value_len == 5);
	CHECK(strcmp(sendoff_param_get(worker, "GREETING", 8, &len), "hello") == 0 && len == 5);
	CHECK(sendoff_param_get(worker, "SENDOFF_ACCEPT", 14, NULL) == NULL);
	CHECK(sendoff_accepts_files(worker) == 1);
	CHECK(sendoff_await_body(worker, -1, -1) == 1);
	CHECK(sendoff_read(worker, body, sizeof body) == 4 && memcmp(body, "body", 4) == 0);
	CHECK(sendoff_read(worker, body, sizeof body) == 0);

	uint32_t epoch = *sendoff_file_epoch();
	CHECK(sendoff_file_use(worker, file) == 1 && sendoff_file_intact(worker, file) == 1);
	CHECK(sendoff_write_head(worker, "\r\n", 2) == 0);
	CHECK(sendoff_write_interim(worker, "Status: 103\r\n\r\n", 15) == 0);
	CHECK(sendoff_write(worker, "<", 1) == 0);
	CHECK(sendoff_write_file(worker, file, 1, size - 1) == 0);
	CHECK(sendoff_write_file(worker, file, 1, size) == -1);
	respond_with_blob();
	sendoff_log(worker, "logged", 6);
	CHECK(sendoff_takes_named(worker) == 0 && sendoff_named(worker, -1) == 0);
	CHECK(sendoff_explains(worker) == 0);
	sendoff_explain(worker, "nobody asked", 12);
	CHECK(sendoff_flush(worker) == 0 && sendoff_aborted(worker) == 0);
	sendoff_finish(worker, 7, 1);
	CHECK(sendoff_write(worker, ">", 1) == -1);
	sendoff_ready(worker);
	sendoff_files_unuse(worker);
	sendoff_file_drop(worker, file);
	CHECK(sendoff_file_use(worker, file) == 0 && sendoff_file_intact(worker, file) == 0);
	CHECK(*sendoff_file_epoch() != epoch);
}

/* A child must not wait for the helper thread, which it lacks, nor write to the links. */
static void fork_a_child(void)
{
	int status;
	pid_t child = fork();

	CHECK(child >= 0);
	if (child == 0) {
		CHECK(sendoff_write(worker, "x", 1) == -1);
		sendoff_stop(worker);
		CHECK(sendoff_accept(worker) == 0);
		sendoff_worker_free(worker);
		_exit(0);
	}
	CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(int argc, char **argv)
{
	struct stat st;
	uint32_t file;
	char *addr;
	int link;

	CHECK(argc == 4 && stat(argv[3], &st) == 0);
	CHECK(sendoff_worker_new(NULL, 0, -1) == NULL && errno == EINVAL);
	link = atoi(argv[1]);
	worker = sendoff_worker_new(&link, 1, atoi(argv[2]));
	CHECK(worker != NULL);
	signal(SIGTERM, stop);

	addr = mmap(NULL, (size_t)st.st_size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(addr != MAP_FAILED);
	CHECK(hold(argv[3], addr, (uint64_t)st.st_size + 1, &file) == -1 && errno == ESTALE);
	CHECK(hold(argv[3], addr + 1, (uint64_t)st.st_size, &file) == -1 && errno == EINVAL);
	CHECK(hold(argv[3], addr, (uint64_t)st.st_size, &file) == 0 && addr[0] == 'f');

	/* The worker got its links at its start: there is no channel. */
	CHECK(sendoff_channel_open("nobody", 6) == NULL && errno == EINVAL);
	CHECK(sendoff_channel_begin(worker, "nobody", 6, NULL, 0) == -1 &&
		  sendoff_channel_claim(worker) == -1);
	sendoff_channel_end(worker);
	CHECK(sendoff_channel_lost(worker) == 0);

	CHECK(sendoff_accept(worker) == 1);
	fork_a_child();
	respond(file, (uint64_t)st.st_size);
	CHECK(raise(SIGTERM) == 0);
	CHECK(sendoff_accept(worker) == 0);
	sendoff_worker_free(worker);
	sendoff_worker_free(NULL);
	return 0;
}
