package sendoff.tomcat;

import java.io.IOException;
import java.nio.ByteBuffer;

import org.apache.coyote.Response;

/**
 * Sends one response. Head and body gather in memory outside of the heap, from which the library sends them: to the front,
 * into memory shared with it, or to the client itself.
 */
final class ResponseBody {

    /**
     * Bytes that gather before they are sent. A response up to this size leaves in one message or one write to the client;
     * the pages of the buffer take memory when they are first used.
     */
    private static final int GATHERED = 128 * 1024;

    private final ByteBuffer gathered = ByteBuffer.allocateDirect(GATHERED);
    /** For a longer head. */
    private ByteBuffer buffer = gathered;
    private Connection connection;
    /** Null if the response is not explained. */
    private Explanation explanation;
    private FragmentCount fragments;
    private boolean useSendfile;
    private int headLength;
    private long written;
    private boolean isFinished;

    void begin(Connection connection) {
        this.connection = connection;
        buffer = gathered;
        buffer.clear();
        headLength = 0;
        written = 0;
        isFinished = false;
        explanation = null;
    }

    /** Tells the front the place that makes this response. */
    void explain(Explanation explanation, FragmentCount fragments, boolean useSendfile) {
        this.explanation = explanation;
        this.fragments = fragments;
        this.useSendfile = useSendfile;
    }

    long written() {
        return written;
    }

    boolean isFinished() {
        return isFinished;
    }

    /** Writes the head, before anything else. */
    void head(Response response) {
        int bound = ResponseHead.bound(response);
        if (bound > buffer.capacity()) {
            buffer = ByteBuffer.allocateDirect(bound);
        }
        ResponseHead.write(response, buffer);
        headLength = buffer.position();
    }

    void write(ByteBuffer bytes) throws IOException {
        written += bytes.remaining();
        while (bytes.hasRemaining()) {
            if (!buffer.hasRemaining()) {
                send(Connection.THEN_WAIT);
            }
            int length = Math.min(bytes.remaining(), buffer.remaining());
            buffer.put(buffer.position(), bytes, bytes.position(), length);
            buffer.position(buffer.position() + length);
            bytes.position(bytes.position() + length);
        }
    }

    void flush() throws IOException {
        send(Connection.THEN_FLUSH);
    }

    void finish() throws IOException {
        isFinished = true;
        byte[] note = explanation == null ? null : fragments.note();
        if (note != null) {
            connection.explain(note);
        }
        send(Connection.THEN_FINISH);
    }

    /** Ends the response with a range of a file, which is the whole body. */
    void finish(FileRange file) throws IOException {
        isFinished = true;
        if (explanation != null) {
            connection.explain(explanation.ofFile(file));
        }
        connection.sendFile(buffer, headLength, file.path(), file.start(), file.length());
        written += file.length();
    }

    private void send(int then) throws IOException {
        int head = headLength;
        int length = buffer.position();
        headLength = 0;
        buffer.clear();
        byte[] text = explanation == null ? null : explanation.take(useSendfile);
        if (text != null) {
            connection.explain(text);
        }
        connection.send(buffer, head, length, then);
    }
}
