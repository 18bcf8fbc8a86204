package sendoff.tomcat;

import java.nio.ByteBuffer;
import java.util.Locale;
import java.util.Set;

import org.apache.coyote.Response;
import org.apache.juli.logging.Log;
import org.apache.juli.logging.LogFactory;
import org.apache.tomcat.util.buf.MessageBytes;
import org.apache.tomcat.util.http.MimeHeaders;

/** Writes Tomcat's response head as a CGI header block (RFC 3875 section 6). */
final class ResponseHead {

    private static final Log log = LogFactory.getLog(ResponseHead.class);

    /**
     * Fields that the front would interpret, or that concern the connection to the client, which belongs to the
     * front.
     */
    private static final Set<String> NOT_PASSED = Set.of("status", "x-sendoff", "connection", "keep-alive",
            "transfer-encoding");

    private ResponseHead() {
    }

    /**
     * Completes the fields as Tomcat's HTTP connector does.
     *
     * @param hasBody whether a response with this status has a body
     */
    static void complete(Response response, boolean hasBody) {
        MimeHeaders fields = response.getMimeHeaders();
        if (hasBody || response.getStatus() == 204) {
            if (response.getContentType() != null) {
                fields.setValue("Content-Type").setString(response.getContentType());
            }
            if (response.getContentLanguage() != null) {
                fields.setValue("Content-Language").setString(response.getContentLanguage());
            }
        }
        if (response.getContentLengthLong() >= 0) {
            fields.setValue("Content-Length").setLong(response.getContentLengthLong());
        }
    }

    /** The block's length is at most this, in bytes. */
    static int bound(Response response) {
        MimeHeaders fields = response.getMimeHeaders();
        int bound = "Status: 999999999\r\n\r\n".length();
        for (int i = 0; i < fields.size(); i++) {
            bound += fields.getName(i).toString().length() + fields.getValue(i).toString().length() + 4;
        }
        return bound;
    }

    static void write(Response response, ByteBuffer out) {
        MimeHeaders fields = response.getMimeHeaders();
        put(out, "Status: ");
        put(out, Integer.toString(response.getStatus()));
        endLine(out);
        for (int i = 0; i < fields.size(); i++) {
            writeField(fields.getName(i), fields.getValue(i), out);
        }
        endLine(out);
    }

    private static void endLine(ByteBuffer out) {
        out.put((byte) '\r').put((byte) '\n');
    }

    private static void writeField(MessageBytes nameBytes, MessageBytes valueBytes, ByteBuffer out) {
        String name = nameBytes.toString();
        String value = valueBytes.toString();
        if (NOT_PASSED.contains(name.toLowerCase(Locale.ROOT))) {
            return;
        }
        int start = out.position();
        if (!put(out, name) || !put(out, ": ") || !put(out, value)) {
            log.warn("The response field " + name + " is left out: its value has characters that are not in ISO 8859-1");
            out.position(start);
            return;
        }
        endLine(out);
    }

    /** Replaces control characters by spaces, as the HTTP connector does. Returns false if a character has no byte. */
    private static boolean put(ByteBuffer out, String text) {
        for (int i = 0; i < text.length(); i++) {
            char c = text.charAt(i);
            if (c > 0xff) {
                return false;
            }
            boolean isControl = c < ' ' && c != '\t' || c == 127;
            out.put((byte) (isControl ? ' ' : c));
        }
        return true;
    }
}
