package sendoff.tomcat;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Optional;

import org.apache.catalina.connector.Connector;
import org.apache.catalina.connector.CoyoteAdapter;
import org.apache.catalina.connector.CoyoteOutputStream;
import org.apache.catalina.connector.CoyoteWriter;
import org.apache.catalina.connector.OutputBuffer;
import org.apache.coyote.Constants;

/**
 * Notes where the application makes its response, for {@code sendoff explain}. For one request, Tomcat's adapter works with
 * a request and a response of ours, whose streams look at the stack at each write. Other requests pay nothing for it.
 */
final class Explanation {

    /** Classes between the application and its streams. Compiled JSPs are in {@code org.apache.jsp}. */
    private static final List<String> SERVER = List.of("org.apache.catalina.", "org.apache.coyote.", "org.apache.tomcat.",
            "org.apache.jasper.", "jakarta.", "java.", "jdk.", "sun.", Explanation.class.getName());

    /**
     * The classes among them that write nothing of their own. The remaining ones are Tomcat's servlets and error
     * pages.
     */
    private static final List<String> STREAMS = List.of("org.apache.catalina.connector.", "org.apache.catalina.util.",
            "org.apache.tomcat.", "jakarta.", "java.", "jdk.", "sun.", Explanation.class.getName());

    private static final String DEFAULT_SERVLET = "org.apache.catalina.servlets.DefaultServlet";

    private final org.apache.coyote.Request request;
    private final org.apache.coyote.Response response;
    private final Object usualRequest;
    private final Object usualResponse;
    /** The place where the application has named a file to send. */
    private StackTraceElement named;
    /** The places of the output since the last {@link #take}. */
    private StackTraceElement first;
    private StackTraceElement last;
    private int writes;

    /** Starts with a request that has not reached the adapter yet. */
    Explanation(Connector connector, org.apache.coyote.Request request, org.apache.coyote.Response response) {
        this.request = request;
        this.response = response;
        usualRequest = request.getNote(CoyoteAdapter.ADAPTER_NOTES);
        usualResponse = response.getNote(CoyoteAdapter.ADAPTER_NOTES);
        Request watchedRequest = new Request(connector);
        Response watchedResponse = new Response();
        watchedRequest.setCoyoteRequest(request);
        watchedResponse.setCoyoteResponse(response);
        watchedRequest.setResponse(watchedResponse);
        watchedResponse.setRequest(watchedRequest);
        request.setNote(CoyoteAdapter.ADAPTER_NOTES, watchedRequest);
        response.setNote(CoyoteAdapter.ADAPTER_NOTES, watchedResponse);
        request.getParameters().setQueryStringCharset(connector.getURICharset());
    }

    /** Gives the adapter its usual request and response back. */
    void end() {
        request.setNote(CoyoteAdapter.ADAPTER_NOTES, usualRequest);
        response.setNote(CoyoteAdapter.ADAPTER_NOTES, usualResponse);
    }

    /** The explanation of a file for the front (docs/handover.md, EXPLAIN). */
    byte[] ofFile(FileRange file) {
        return text(named == null ? "" : named.toString(), file.path(), "");
    }

    /**
     * What the front is told about the bytes that have been written and not been taken; null if there are none.
     *
     * @param useSendfile whether servlets may name files
     */
    byte[] take(boolean useSendfile) {
        if (writes == 0) {
            return null;
        }
        String from = first.equals(last) ? first.toString() : first + " to " + last;
        String what = writes == 1 ? "1 write" : writes + " writes";
        String why = "written by the application";
        if (last.getClassName().equals(DEFAULT_SERVLET)) {
            why = useSendfile ? "below sendfileSize, wrapped by a filter, or in an archive" : "useSendfile is false";
        }
        writes = 0;
        return text(from, what, why);
    }

    private static byte[] text(String from, String what, String why) {
        return ("bytes\t" + from + "\t" + what + "\t" + why).getBytes(StandardCharsets.UTF_8);
    }

    private void wrote() {
        last = place();
        if (writes++ == 0) {
            first = last;
        }
    }

    /** The innermost frame of the application, or of Tomcat's own servlet. */
    private static StackTraceElement place() {
        return outside(SERVER).or(() -> outside(STREAMS)).orElseGet(() -> new Throwable().getStackTrace()[0]);
    }

    private static Optional<StackTraceElement> outside(List<String> classes) {
        return StackWalker.getInstance().walk(frames -> frames
                .takeWhile(frame -> !frame.getClassName().equals(SendoffProcessor.class.getName()))
                .filter(frame -> classes.stream().noneMatch(frame.getClassName()::startsWith))
                .findFirst().map(frame -> plain(frame.toStackTraceElement())));
    }

    /** Without the names of class loader and module. */
    private static StackTraceElement plain(StackTraceElement element) {
        return new StackTraceElement(element.getClassName(), element.getMethodName(), element.getFileName(),
                element.getLineNumber());
    }

    private final class Request extends org.apache.catalina.connector.Request {

        Request(Connector connector) {
            super(connector);
        }

        @Override
        public void setAttribute(String name, Object value) {
            if (name.equals(Constants.SENDFILE_FILENAME_ATTR)) {
                named = place();
            }
            super.setAttribute(name, value);
        }
    }

    private final class Response extends org.apache.catalina.connector.Response {

        Response() {
            outputStream = new Stream(outputBuffer);
            writer = new Writer(outputBuffer);
        }
    }

    private final class Stream extends CoyoteOutputStream {

        Stream(OutputBuffer buffer) {
            super(buffer);
        }

        @Override
        public void write(int b) throws IOException {
            wrote();
            super.write(b);
        }

        @Override
        public void write(byte[] bytes, int offset, int length) throws IOException {
            wrote();
            super.write(bytes, offset, length);
        }

        @Override
        public void write(ByteBuffer bytes) throws IOException {
            wrote();
            super.write(bytes);
        }
    }

    private final class Writer extends CoyoteWriter {

        Writer(OutputBuffer buffer) {
            super(buffer);
        }

        @Override
        public void write(int c) {
            wrote();
            super.write(c);
        }

        @Override
        public void write(char[] text, int offset, int length) {
            wrote();
            super.write(text, offset, length);
        }

        @Override
        public void write(String text, int offset, int length) {
            wrote();
            super.write(text, offset, length);
        }
    }
}
