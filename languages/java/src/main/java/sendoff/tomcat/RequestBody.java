package sendoff.tomcat;

import java.io.IOException;
import java.nio.ByteBuffer;

import org.apache.coyote.InputBuffer;
import org.apache.tomcat.util.buf.ByteChunk;
import org.apache.tomcat.util.net.ApplicationBufferHandler;

/** Reads one request body as it arrives. */
final class RequestBody implements InputBuffer {

    private static final int BUFFER = 16 * 1024;

    /** The connection writes into it. */
    private final ByteBuffer received = ByteBuffer.allocateDirect(BUFFER);
    /** The same bytes with an array, which Tomcat's decoder of characters demands. */
    private final ByteBuffer own = ByteBuffer.allocate(BUFFER);
    /** Bytes that have been read and not yet passed to the application. */
    private ByteBuffer waiting = own;
    private Connection connection;
    /** Bytes that are still to be read from the connection; negative: their number is not known. */
    private long left;
    private boolean hasEnded;

    void begin(Connection connection) {
        this.connection = connection;
        waiting = own;
        own.limit(0);
        expect(-1);
    }

    /** Sets the announced length, in bytes; negative: there is none. */
    void expect(long length) {
        left = length;
        hasEnded = length == 0;
    }

    /** Uses a saved body instead: the body of a form that a login page has interrupted. */
    void replay(ByteChunk saved) {
        waiting = ByteBuffer.wrap(saved.getBytes(), saved.getStart(), saved.getLength());
        expect(0);
    }

    /** True if the application has got the whole body. Waits for bytes of a body without an announced length. */
    boolean isFinished() throws IOException {
        return hasEnded ? !waiting.hasRemaining() : left < 0 && !fill();
    }

    @Override
    public int doRead(ApplicationBufferHandler handler) throws IOException {
        if (!fill()) {
            return -1;
        }
        ByteBuffer bytes = waiting.duplicate();
        waiting.position(waiting.limit());
        handler.setByteBuffer(bytes);
        return bytes.remaining();
    }

    /** At least 1 if bytes are to come, so that an application which asks first reads them. */
    @Override
    public int available() {
        return waiting.hasRemaining() ? waiting.remaining() : hasEnded || left < 0 ? 0 : 1;
    }

    /** Waits for more of the body unless there are unread bytes. Returns false at the end. */
    boolean fill() throws IOException {
        if (waiting.hasRemaining()) {
            return true;
        }
        if (!hasEnded) {
            int length = connection.read(received);
            if (left >= 0) {
                length = (int) Math.min(length, left);
                left -= length;
            }
            own.clear().put(received.limit(length).position(0)).flip();
            waiting = own;
            hasEnded = length == 0 || left == 0;
        }
        return waiting.hasRemaining();
    }
}
