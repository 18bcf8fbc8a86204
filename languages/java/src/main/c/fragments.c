/*
 * Fragments: parts of pages that one thread makes and all processes of the pool send
 * (docs/fragments.md). A thread that makes one stays below fragment() meanwhile: the permit belongs
 * to the thread.
 */
#include "native.h"
#include "sendoff.h"

#include <errno.h>
#include <string.h>

/* The key of a fragment, and at most 64 tags. */
#define MOST_NAMES 65

/* Longest wait for another thread or process, in milliseconds. */
#define PATIENCE 5000

/* NULL: none are kept. Set by shareFragments(), perhaps after other threads have started. */
static sendoff_fragments *fragments;

/* Fragments.Maker.make() */
static jmethodID make;

bool load_fragments(JNIEnv *env)
{
	jclass class = (*env)->FindClass(env, "sendoff/tomcat/Fragments$Maker");

	if (class != NULL) {
		make = (*env)->GetMethodID(env, class, "make", "()Ljava/lang/Object;");
	}
	return make != NULL;
}

static sendoff_fragments *shared(void)
{
	return __atomic_load_n(&fragments, __ATOMIC_ACQUIRE);
}

NATIVE(void, shareFragments)(JNIEnv *env, jclass class, jlong size)
{
	sendoff_fragments *made;

	/* Connectors may start at the same time. */
	if ((*env)->MonitorEnter(env, class) != 0) {
		return;
	}
	if (shared() == NULL) {
		made = sendoff_fragments_of_pool();
		if (made == NULL && size > 0 && (made = sendoff_fragments_new((size_t)size)) == NULL) {
			throw_io(env, "Cannot keep", "fragments", errno);
		}
		__atomic_store_n(&fragments, made, __ATOMIC_RELEASE);
	}
	(*env)->MonitorExit(env, class);
}

/* Names packed by Fragments.names(). */
struct names {
	jbyte *bytes;
	sendoff_text texts[MOST_NAMES];
	size_t count;
};

static bool take_names(JNIEnv *env, jbyteArray packed, struct names *names)
{
	jsize len = (*env)->GetArrayLength(env, packed);
	const unsigned char *at, *end;

	names->count = 0;
	names->bytes = (*env)->GetByteArrayElements(env, packed, NULL);
	if (names->bytes == NULL) {
		return false;
	}
	at = (const unsigned char *)names->bytes;
	for (end = at + len; at < end && names->count < MOST_NAMES; names->count++) {
		size_t name_len = (size_t)at[0] << 24 | (size_t)at[1] << 16 | (size_t)at[2] << 8 | at[3];

		names->texts[names->count] = (sendoff_text){(const char *)at + 4, name_len};
		at += 4 + name_len;
	}
	return true;
}

static void leave_names(JNIEnv *env, jbyteArray packed, struct names *names)
{
	(*env)->ReleaseByteArrayElements(env, packed, names->bytes, JNI_ABORT);
}

/* A copy of a kept fragment, whose use ends. */
static jbyteArray copy_out(JNIEnv *env, sendoff_fragment *kept, const char *bytes, size_t len)
{
	jbyteArray copy = (*env)->NewByteArray(env, (jsize)len);

	if (copy != NULL) {
		(*env)->SetByteArrayRegion(env, copy, 0, (jsize)len, (const jbyte *)bytes);
	}
	sendoff_fragment_end(kept, 0, NULL, 0);
	return copy;
}

/* Makes a fragment that the caller has asked for (NULL: it will not be kept), and keeps it. */
static jobject make_fragment(JNIEnv *env, jobject maker, sendoff_fragment *asked, jint seconds)
{
	jobject made = (*env)->CallObjectMethod(env, maker, make);
	jbyte *bytes = NULL;
	jsize len = 0;

	if (asked != NULL && !(*env)->ExceptionCheck(env) && made != NULL) {
		len = (*env)->GetArrayLength(env, made);
		bytes = (*env)->GetByteArrayElements(env, made, NULL);
	}
	sendoff_fragment_end(asked, (unsigned int)seconds, (const char *)bytes, (size_t)len);
	if (bytes != NULL) {
		(*env)->ReleaseByteArrayElements(env, made, bytes, JNI_ABORT);
	}
	return made;
}

NATIVE(jobject, fragment)
(JNIEnv *env, jclass class, jbyteArray packed, jint seconds, jobject maker)
{
	sendoff_fragment *asked;
	struct names names;
	const char *kept;
	size_t len;

	(void)class;
	if (!take_names(env, packed, &names)) {
		return NULL;
	}
	asked = sendoff_fragment_ask(shared(), names.texts[0].data, names.texts[0].len, names.texts + 1,
								 names.count - 1, PATIENCE);
	leave_names(env, packed, &names);
	kept = sendoff_fragment_bytes(asked, &len, NULL);
	return kept != NULL ? copy_out(env, asked, kept, len)
						: make_fragment(env, maker, asked, seconds);
}

NATIVE(jbyteArray, fetchFragment)(JNIEnv *env, jclass class, jbyteArray key)
{
	jsize key_len = (*env)->GetArrayLength(env, key);
	jbyte *name = (*env)->GetByteArrayElements(env, key, NULL);
	sendoff_fragment *kept;
	const char *bytes;
	size_t len;

	(void)class;
	if (name == NULL) {
		return NULL;
	}
	kept = sendoff_fragment_fetch(shared(), (const char *)name, (size_t)key_len);
	(*env)->ReleaseByteArrayElements(env, key, name, JNI_ABORT);
	bytes = sendoff_fragment_bytes(kept, &len, NULL);
	return bytes != NULL ? copy_out(env, kept, bytes, len) : NULL;
}

NATIVE(jboolean, storeFragment)
(JNIEnv *env, jclass class, jbyteArray packed, jint seconds, jbyteArray fragment, jlong purges)
{
	jsize len = (*env)->GetArrayLength(env, fragment);
	jbyte *bytes = (*env)->GetByteArrayElements(env, fragment, NULL);
	struct names names;
	int is_kept = 0;

	(void)class;
	if (bytes == NULL) {
		return JNI_FALSE;
	}
	if (take_names(env, packed, &names)) {
		is_kept = sendoff_fragment_store(shared(), names.texts[0].data, names.texts[0].len,
										 names.texts + 1, names.count - 1, (unsigned int)seconds,
										 (const char *)bytes, (size_t)len, (uint64_t)purges);
		leave_names(env, packed, &names);
	}
	(*env)->ReleaseByteArrayElements(env, fragment, bytes, JNI_ABORT);
	return is_kept ? JNI_TRUE : JNI_FALSE;
}

NATIVE(jlong, fragmentPurges)(JNIEnv *env, jclass class)
{
	(void)env;
	(void)class;
	return (jlong)sendoff_fragments_purges(shared());
}

NATIVE(void, purgeFragments)(JNIEnv *env, jclass class, jbyteArray tag)
{
	jbyte *name;

	(void)class;
	if (tag == NULL) {
		sendoff_fragments_purge(shared(), NULL, 0);
	} else if ((name = (*env)->GetByteArrayElements(env, tag, NULL)) != NULL) {
		sendoff_fragments_purge(shared(), (const char *)name,
								(size_t)(*env)->GetArrayLength(env, tag));
		(*env)->ReleaseByteArrayElements(env, tag, name, JNI_ABORT);
	}
}
