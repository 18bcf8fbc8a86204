package sendoff.tomcat;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.Charset;

/**
 * A connection that a front has opened. It is used by one thread at a time, except for {@link #stop}, which any thread may
 * call.
 */
final class Connection {

    /** The virtual machine's encoding of file names. */
    private static final Charset FILE_NAMES = Charset.forName(System.getProperty("sun.jnu.encoding"));

    /** The action of {@link #send} after the bytes. */
    static final int THEN_WAIT = 0;
    static final int THEN_FLUSH = 1;
    static final int THEN_FINISH = 2;

    /** The library's worker; 0 after the connection has been closed. */
    private long worker;
    /** True while a response is open and not completely sent. */
    private volatile boolean isOpen;

    Connection(long worker) {
        this.worker = worker;
    }

    /**
     * Waits for the next request and packs its parameters into {@code buffer}: each as the lengths of name and value, four
     * bytes, big-endian, and then both.
     *
     * @return their length, which may exceed that of the buffer; get them with {@link #parameters} then. 0: no other
     *         request will come.
     */
    int next(byte[] buffer) {
        int length = Native.next(worker, buffer);
        isOpen = length > 0;
        return length;
    }

    void parameters(byte[] buffer) {
        Native.parameters(worker, buffer);
    }

    /**
     * Reads the request body into the direct buffer's memory from its start on.
     *
     * @return the number of bytes, 0 at the end
     */
    int read(ByteBuffer direct) throws IOException {
        return Native.read(worker, direct, direct.capacity());
    }

    /**
     * Sends the first {@code length} bytes of a direct buffer. The first {@code headLength} of them are the response head,
     * or a part of the body if that is 0.
     */
    void send(ByteBuffer direct, int headLength, int length, int then) throws IOException {
        if (!Native.send(worker, direct, headLength, length, then)) {
            throw new IOException("The client has closed the connection");
        }
        if (then == THEN_FINISH) {
            isOpen = false;
        }
    }

    /** Sends a whole response: the head, at the start of a direct buffer, and a range of a file. */
    void sendFile(ByteBuffer direct, int headLength, String path, long start, long length) throws IOException {
        Native.sendFile(worker, direct, headLength, path.getBytes(FILE_NAMES), start, length);
        isOpen = false;
    }

    /** True if the front wants the response explained. */
    boolean explains() {
        return Native.explains(worker);
    }

    /** Explains the output that follows, in the form of docs/handover.md (EXPLAIN), in UTF-8. */
    void explain(byte[] text) {
        Native.explain(worker, text);
    }

    /** Refuses further requests. A request that the connection has begun to read is read and answered. */
    synchronized void stop() {
        if (worker != 0) {
            Native.stop(worker);
        }
    }

    /** Ends the connection. An incomplete response gets no end, so that the front considers it cut. */
    synchronized void close() {
        if (worker != 0) {
            Native.release(worker, !isOpen);
            worker = 0;
        }
    }
}
