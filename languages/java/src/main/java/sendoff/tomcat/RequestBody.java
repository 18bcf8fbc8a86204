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
    private boolean hasEnded;

    void begin(Connection connection) {
        this.connection = connection;
        waiting = own;
        own.limit(0);
        hasEnded = false;
    }

    /** Uses a saved body instead: the body of a form that a login page has interrupted. */
    void replay(ByteChunk saved) {
        waiting = ByteBuffer.wrap(saved.getBytes(), saved.getStart(), saved.getLength());
        hasEnded = false;
        connection = null;
    }

    boolean hasEnded() {
        return hasEnded;
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

    @Override
    public int available() {
        return waiting.remaining();
    }

    /** Waits for more of the body unless there are unread bytes. Returns false at the end. */
    boolean fill() throws IOException {
        if (waiting.hasRemaining()) {
            return true;
        }
        if (!hasEnded) {
            int length = connection == null ? 0 : connection.read(received);
            own.clear().put(received.limit(length).position(0)).flip();
            waiting = own;
            hasEnded = length == 0;
        }
        return !hasEnded;
    }
}
