/* Shared by the files of the native half (Native.java). */
#ifndef SENDOFF_NATIVE_H
#define SENDOFF_NATIVE_H

#include <jni.h>
#include <stdbool.h>

#define NATIVE(result, name) JNIEXPORT result JNICALL Java_sendoff_tomcat_Native_##name

/* Throws an IOException that says what could not be done, and why (errno). */
void throw_io(JNIEnv *env, const char *what, const char *about, int error);

/* Looks up the classes that fragments need. false: an exception is pending. */
bool load_fragments(JNIEnv *env);

#endif
