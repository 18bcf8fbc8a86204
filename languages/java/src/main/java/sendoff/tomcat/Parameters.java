package sendoff.tomcat;

import java.io.ByteArrayInputStream;
import java.nio.charset.StandardCharsets;
import java.security.cert.CertificateException;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;
import java.util.Arrays;
import java.util.Set;

import org.apache.coyote.Request;
import org.apache.tomcat.util.buf.MessageBytes;
import org.apache.tomcat.util.http.MimeHeaders;
import org.apache.tomcat.util.net.SSLSupport;

/** Makes Tomcat's request of CGI parameters (RFC 3875 section 4.1), whose bytes it refers to. */
final class Parameters {

    private static final int FIRST_BUFFER = 8 * 1024;

    private static final String FIELD = "HTTP_";
    private static final String TYPE = "CONTENT_TYPE";
    private static final String LENGTH = "CONTENT_LENGTH";

    /** Fields that have parameters of their own, and the coding of a body that arrives without it. */
    private static final Set<String> ELSEWHERE = Set.of(FIELD + TYPE, FIELD + LENGTH, FIELD + "TRANSFER_ENCODING");

    private final SendoffProtocol protocol;
    private byte[] buffer = new byte[FIRST_BUFFER];
    private byte[] certificate;

    Parameters(SendoffProtocol protocol) {
        this.protocol = protocol;
    }

    /**
     * Waits for the next request on the connection.
     *
     * @return whether there is one
     */
    boolean read(Connection connection, Request request) {
        certificate = null;
        int length = connection.next(buffer);
        if (length == 0) {
            return false;
        }
        request.markStartTime();
        if (length > buffer.length) {
            buffer = new byte[length];
            connection.parameters(buffer);
        }
        for (int at = 0; at < length;) {
            int name = at + 8;
            int value = name + number(at);
            int end = value + number(at + 4);
            take(request, name, value, end);
            at = end;
        }
        return true;
    }

    private int number(int at) {
        return (buffer[at] & 0xff) << 24 | (buffer[at + 1] & 0xff) << 16 | (buffer[at + 2] & 0xff) << 8
                | buffer[at + 3] & 0xff;
    }

    private void take(Request request, int start, int value, int end) {
        String name = new String(buffer, start, value - start, StandardCharsets.ISO_8859_1);
        if (name.startsWith(FIELD) && !ELSEWHERE.contains(name)) {
            field(request.getMimeHeaders(), start + FIELD.length(), value, end);
            return;
        }
        switch (name) {
            case "REQUEST_METHOD" -> request.setMethod(text(value, end));
            case "REQUEST_URI" -> uri(request, value, end);
            case "SERVER_PROTOCOL" -> set(request.protocol(), value, end);
            case "REQUEST_SCHEME" -> set(request.scheme(), value, end);
            case "SERVER_NAME" -> set(request.localName(), value, end);
            case "SERVER_ADDR" -> set(request.localAddr(), value, end);
            case "SERVER_PORT" -> request.setLocalPort(decimal(value, end));
            case "REMOTE_ADDR" -> {
                set(request.remoteAddr(), value, end);
                set(request.peerAddr(), value, end);
            }
            case "REMOTE_HOST" -> set(request.remoteHost(), value, end);
            case "REMOTE_PORT" -> request.setRemotePort(decimal(value, end));
            case TYPE -> unique(request.getMimeHeaders(), "content-type", value, end);
            case LENGTH -> unique(request.getMimeHeaders(), "content-length", value, end);
            case "HTTPS" -> {
                if (text(value, end).equals("on")) {
                    request.scheme().setString("https");
                }
            }
            case "REMOTE_USER" -> {
                if (end > value && (!protocol.getTomcatAuthentication() || protocol.getTomcatAuthorization())) {
                    request.getRemoteUser().setString(text(value, end));
                    request.setRemoteUserNeedsAuthorization(protocol.getTomcatAuthorization());
                }
            }
            case "AUTH_TYPE" -> {
                if (!protocol.getTomcatAuthentication()) {
                    request.getAuthType().setString(text(value, end));
                }
            }
            case "SSL_CIPHER" -> request.setAttribute(SSLSupport.CIPHER_SUITE_KEY, text(value, end));
            case "SSL_PROTOCOL" -> request.setAttribute(SSLSupport.PROTOCOL_VERSION_KEY, text(value, end));
            case "SSL_CLIENT_CERT" -> certificate = Arrays.copyOfRange(buffer, value, end);
            default -> {
                // Of the CGI parameters, a servlet request has only those above.
            }
        }
    }

    private String text(int from, int end) {
        return new String(buffer, from, end - from, StandardCharsets.ISO_8859_1);
    }

    private void set(MessageBytes message, int from, int end) {
        message.setBytes(buffer, from, end - from);
    }

    private int decimal(int from, int end) {
        int number = 0;
        for (int at = from; at < end && number < 100_000; at++) {
            if (buffer[at] < '0' || buffer[at] > '9') {
                return 0;
            }
            number = number * 10 + buffer[at] - '0';
        }
        return number;
    }

    /** Sets path and query of the request's target, which may be a whole URI (RFC 9112 section 3.2.2). */
    private void uri(Request request, int from, int end) {
        int query = from;
        while (query < end && buffer[query] != '?') {
            query++;
        }
        int path = from;
        if (path < query && buffer[path] != '/') {
            String start = text(path, query);
            int authority = start.indexOf("://");
            if (authority > 0) {
                int slash = start.indexOf('/', authority + 3);
                path = slash < 0 ? query : path + slash;
            }
        }
        if (path == query && path > from) {
            request.requestURI().setString("/");
        } else {
            set(request.requestURI(), path, query);
        }
        if (query < end) {
            set(request.queryString(), query + 1, end);
        }
    }

    /** Adds a field of the client: {@code HTTP_ACCEPT_LANGUAGE} was {@code accept-language}. */
    private void field(MimeHeaders fields, int name, int value, int end) {
        for (int at = name; at < value; at++) {
            byte b = buffer[at];
            if (b == '_') {
                buffer[at] = '-';
            } else if (b >= 'A' && b <= 'Z') {
                buffer[at] = (byte) (b + ('a' - 'A'));
            }
        }
        set(fields.addValue(buffer, name, value - name), value, end);
    }

    /** Sets a field that has a parameter of its own, and which the front may send among the client's fields, too. */
    private void unique(MimeHeaders fields, String name, int value, int end) {
        if (end > value) {
            set(fields.setValue(name), value, end);
        }
    }

    /** The certificate that the client has shown to the front; null if it has not. */
    X509Certificate certificate() throws CertificateException {
        if (certificate == null) {
            return null;
        }
        CertificateFactory factory = CertificateFactory.getInstance("X.509");
        return (X509Certificate) factory.generateCertificate(new ByteArrayInputStream(certificate));
    }
}
