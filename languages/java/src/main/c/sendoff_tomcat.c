/*
 * The native half of the connector (Native.java): connections, requests and responses through
 * libsendoff. Each function is called by one thread at a time for one worker, except stop().
 */
#define _GNU_SOURCE
#include "native.h"
#include "sendoff.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* The action of send() after the bytes; Connection.java has the same numbers. */
enum then { THEN_WAIT = 0, THEN_FLUSH = 1, THEN_FINISH = 2 };

/* Maximum number of files that stay held under their leases for further requests; the same as in a
 * PHP worker. */
#define MOST_FILES 128

/* Hands over the files of all connections. */
static sendoff_sender *sender;

JNIEXPORT jint JNICALL JNI_OnLoad(JavaVM *vm, void *reserved)
{
	JNIEnv *env;

	(void)reserved;
	if ((*vm)->GetEnv(vm, (void **)&env, JNI_VERSION_10) != JNI_OK || !load_fragments(env)) {
		return JNI_ERR;
	}
	sender = sendoff_sender_new(MOST_FILES);
	return sender != NULL ? JNI_VERSION_10 : JNI_ERR;
}

static sendoff_worker *worker_at(jlong address)
{
	return (sendoff_worker *)(intptr_t)address;
}

void throw_io(JNIEnv *env, const char *what, const char *about, int error)
{
	jclass class = (*env)->FindClass(env, "java/io/IOException");
	char message[512];

	if (class != NULL) {
		snprintf(message, sizeof message, "%s %s: %s", what, about, strerror(error));
		(*env)->ThrowNew(env, class, message);
	}
}

NATIVE(jint, listen)(JNIEnv *env, jclass class, jstring address, jint backlog)
{
	const char *text = (*env)->GetStringUTFChars(env, address, NULL);
	int fd;

	(void)class;
	if (text == NULL) {
		return -1;
	}
	fd = sendoff_listen(text, backlog);
	if (fd < 0) {
		throw_io(env, "Cannot listen at", text, errno);
	}
	(*env)->ReleaseStringUTFChars(env, address, text);
	return fd;
}

NATIVE(jboolean, isListener)(JNIEnv *env, jclass class, jint fd)
{
	(void)env;
	(void)class;
	return sendoff_is_listener(fd) ? JNI_TRUE : JNI_FALSE;
}

NATIVE(jint, newWake)(JNIEnv *env, jclass class)
{
	int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);

	(void)class;
	if (fd < 0) {
		throw_io(env, "Cannot make an", "eventfd", errno);
	}
	return fd;
}

NATIVE(void, wake)(JNIEnv *env, jclass class, jint fd)
{
	(void)env;
	(void)class;
	/* The write fails only if the counter is full, which also wakes. */
	eventfd_write(fd, 1);
}

NATIVE(void, close)(JNIEnv *env, jclass class, jint fd)
{
	(void)env;
	(void)class;
	close(fd);
}

/* Waits for a connection. false: woken, or an error (errno). */
static bool wait_for_connection(int listener, int wake)
{
	struct pollfd polled[] = {{.fd = listener, .events = POLLIN}, {.fd = wake, .events = POLLIN}};
	eventfd_t count;

	while (poll(polled, 2, -1) < 0) {
		if (errno != EINTR) {
			return false;
		}
	}
	if (polled[1].revents != 0) {
		eventfd_read(wake, &count);
		errno = ECANCELED;
		return false;
	}
	return true;
}

NATIVE(jlong, accept)(JNIEnv *env, jclass class, jint listener, jint wake)
{
	sendoff_worker *worker = NULL;
	int fd = -1;

	(void)class;
	if (wait_for_connection(listener, wake)) {
		fd = sendoff_accept_connection(listener, getenv("FCGI_WEB_SERVER_ADDRS"));
	}
	if (fd >= 0) {
		worker = sendoff_worker_on(fd, SENDOFF_RESPONDER);
	}
	if (worker == NULL) {
		throw_io(env, "Cannot accept", "a connection", errno);
		return 0;
	}
	sendoff_sends_files(worker);
	return (jlong)(intptr_t)worker;
}

static unsigned char *put_u32(unsigned char *at, size_t number)
{
	*at++ = (unsigned char)(number >> 24);
	*at++ = (unsigned char)(number >> 16);
	*at++ = (unsigned char)(number >> 8);
	*at++ = (unsigned char)number;
	return at;
}

static size_t packed_length(const sendoff_param *params, size_t count)
{
	size_t len = 0;

	for (size_t i = 0; i < count; i++) {
		len += 8 + params[i].name_len + params[i].value_len;
	}
	return len;
}

NATIVE(void, parameters)(JNIEnv *env, jclass class, jlong address, jbyteArray buffer)
{
	size_t count;
	const sendoff_param *params = sendoff_params(worker_at(address), &count);
	unsigned char *at, *start;

	(void)class;
	/* No call below blocks, so the garbage collector is not delayed. */
	start = at = (*env)->GetPrimitiveArrayCritical(env, buffer, NULL);
	if (at == NULL) {
		return;
	}
	for (size_t i = 0; i < count; i++) {
		at = put_u32(at, params[i].name_len);
		at = put_u32(at, params[i].value_len);
		at = mempcpy(at, params[i].name, params[i].name_len);
		at = mempcpy(at, params[i].value, params[i].value_len);
	}
	(*env)->ReleasePrimitiveArrayCritical(env, buffer, start, 0);
}

NATIVE(jint, next)(JNIEnv *env, jclass class, jlong address, jbyteArray buffer)
{
	const sendoff_param *params;
	size_t count, len;
	int came;

	do {
		/* -1: interrupted by a signal with which the virtual machine addresses its threads. */
		came = sendoff_accept(worker_at(address));
	} while (came < 0);
	if (came == 0) {
		return 0;
	}
	params = sendoff_params(worker_at(address), &count);
	/* The library takes at most 1 MiB of parameters. */
	len = packed_length(params, count);
	if (len <= (size_t)(*env)->GetArrayLength(env, buffer)) {
		Java_sendoff_tomcat_Native_parameters(env, class, address, buffer);
	}
	return (jint)len;
}

NATIVE(jint, read)(JNIEnv *env, jclass class, jlong address, jobject buffer, jint capacity)
{
	void *at = (*env)->GetDirectBufferAddress(env, buffer);
	ssize_t n = sendoff_read(worker_at(address), at, (size_t)capacity);

	(void)class;
	if (n < 0) {
		throw_io(env, "Cannot read", "the request body", errno);
	}
	return (jint)n;
}

/* Sends bytes. The first `head_len` of them are the head; 0 if the head has been sent. */
static bool send_bytes(sendoff_worker *worker, const char *bytes, size_t head_len, size_t len)
{
	if (head_len > 0 && sendoff_write_head(worker, bytes, head_len) != 0) {
		return false;
	}
	return len == head_len || sendoff_write(worker, bytes + head_len, len - head_len) == 0;
}

NATIVE(jboolean, send)
(JNIEnv *env, jclass class, jlong address, jobject buffer, jint head_len, jint len, jint then)
{
	sendoff_worker *worker = worker_at(address);
	const char *bytes = (*env)->GetDirectBufferAddress(env, buffer);
	bool there = send_bytes(worker, bytes, (size_t)head_len, (size_t)len);

	(void)class;
	if (then == THEN_FINISH) {
		sendoff_finish(worker, 0, 0);
	} else if (then == THEN_FLUSH && there) {
		there = sendoff_flush(worker) == 0;
	}
	return there ? JNI_TRUE : JNI_FALSE;
}

NATIVE(void, sendFile)
(JNIEnv *env, jclass class, jlong address, jobject buffer, jint head_len, jbyteArray path,
 jlong start, jlong len)
{
	sendoff_worker *worker = worker_at(address);
	const char *head = (*env)->GetDirectBufferAddress(env, buffer);
	char name[PATH_MAX];
	jsize name_len = (*env)->GetArrayLength(env, path);
	int fd = -1, error = ENAMETOOLONG;

	(void)class;
	if (name_len >= (jsize)sizeof name) {
		name_len = sizeof name - 1;
	} else {
		/* O_NONBLOCK: the path may name a FIFO by now. */
		(*env)->GetByteArrayRegion(env, path, 0, name_len, (jbyte *)name);
		name[name_len] = '\0';
		fd = open(name, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
		error = fd < 0 ? errno : 0;
	}
	name[name_len] = '\0';
	if (fd >= 0) {
		if (sendoff_send_file(worker, sender, head, (size_t)head_len, fd, (uint64_t)start,
							  (uint64_t)len) < 0) {
			error = EPIPE;
		} else {
			sendoff_finish(worker, 0, 0);
		}
		close(fd);
	}
	if (error != 0) {
		throw_io(env, "Cannot send", name, error);
	}
}

NATIVE(jboolean, explains)(JNIEnv *env, jclass class, jlong address)
{
	(void)env;
	(void)class;
	return sendoff_explains(worker_at(address)) ? JNI_TRUE : JNI_FALSE;
}

NATIVE(void, explain)(JNIEnv *env, jclass class, jlong address, jbyteArray text)
{
	jsize len = (*env)->GetArrayLength(env, text);
	jbyte *bytes = (*env)->GetByteArrayElements(env, text, NULL);

	(void)class;
	if (bytes != NULL) {
		sendoff_explain(worker_at(address), (const char *)bytes, (size_t)len);
		(*env)->ReleaseByteArrayElements(env, text, bytes, JNI_ABORT);
	}
}

NATIVE(void, stop)(JNIEnv *env, jclass class, jlong address)
{
	(void)env;
	(void)class;
	sendoff_stop(worker_at(address));
}

NATIVE(void, release)(JNIEnv *env, jclass class, jlong address, jboolean is_whole)
{
	(void)env;
	(void)class;
	if (is_whole) {
		sendoff_worker_close(worker_at(address));
	} else {
		sendoff_worker_free(worker_at(address));
	}
}
