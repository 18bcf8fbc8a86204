package sendoff.tomcat;

import java.io.IOException;
import java.net.URISyntaxException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;

/**
 * The functions of src/main/c. A {@code worker} is the address of a {@code sendoff_worker}; buffers must be
 * direct. Functions fail with an {@link IOException} that says what happened and why.
 */
final class Native {

    private static final String LIBRARY = "libsendoff_tomcat.so";

    static {
        load();
    }

    private Native() {
    }

    /** Loads the library from the folder of the jar if it lies there, else from java.library.path. */
    private static void load() {
        Path besideJar = besideJar();
        if (besideJar != null && Files.exists(besideJar)) {
            System.load(besideJar.toString());
        } else {
            System.loadLibrary("sendoff_tomcat");
        }
    }

    private static Path besideJar() {
        try {
            Path jar = Path.of(Native.class.getProtectionDomain().getCodeSource().getLocation().toURI());
            return jar.toAbsolutePath().resolveSibling(LIBRARY);
        } catch (URISyntaxException | IllegalArgumentException | SecurityException e) {
            return null;
        }
    }

    static native int listen(String address, int backlog) throws IOException;

    static native boolean isListener(int descriptor);

    static native int newWake() throws IOException;

    static native void wake(int wake);

    static native void close(int descriptor);

    /** Waits for a connection. Returns a worker that can hand over files. */
    static native long accept(int listener, int wake) throws IOException;

    static native int next(long worker, byte[] buffer);

    static native void parameters(long worker, byte[] buffer);

    static native int read(long worker, ByteBuffer buffer, int capacity) throws IOException;

    /** Returns false if the client has gone. */
    static native boolean send(long worker, ByteBuffer buffer, int headLength, int length, int then);

    static native void sendFile(long worker, ByteBuffer buffer, int headLength, byte[] path, long start, long length)
            throws IOException;

    static native boolean explains(long worker);

    static native void explain(long worker, byte[] text);

    /** Keeps fragments of {@code size} bytes in all, or in the memory of the pool. 0: only there. Once is enough. */
    static native void shareFragments(long size) throws IOException;

    /**
     * Returns the kept fragment, or calls {@code maker} and keeps the result. {@code names}: the key and the tags, each after
     * its length of four bytes, big-endian. A native frame below {@code maker} binds a virtual thread to its carrier, which
     * holds the permit.
     */
    static native byte[] fragment(byte[] names, int seconds, Fragments.Maker<byte[], ?> maker);

    static native byte[] fetchFragment(byte[] key);

    static native boolean storeFragment(byte[] names, int seconds, byte[] fragment, long purges);

    static native long fragmentPurges();

    /** With null all of them. */
    static native void purgeFragments(byte[] tag);

    static native void stop(long worker);

    static native void release(long worker, boolean isWhole);
}
