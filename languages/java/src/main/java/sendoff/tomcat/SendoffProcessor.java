package sendoff.tomcat;

import java.io.IOException;
import java.io.InterruptedIOException;
import java.net.InetAddress;
import java.net.UnknownHostException;
import java.nio.ByteBuffer;
import java.security.cert.CertificateException;
import java.security.cert.X509Certificate;

import jakarta.servlet.ServletConnection;

import org.apache.catalina.connector.Connector;
import org.apache.catalina.connector.CoyoteAdapter;
import org.apache.coyote.AbstractProcessor;
import org.apache.coyote.ActionCode;
import org.apache.coyote.Adapter;
import org.apache.coyote.Constants;
import org.apache.coyote.ContinueResponseTiming;
import org.apache.coyote.ErrorState;
import org.apache.coyote.OutputBuffer;
import org.apache.coyote.UpgradeToken;
import org.apache.juli.logging.Log;
import org.apache.juli.logging.LogFactory;
import org.apache.tomcat.util.ExceptionUtils;
import org.apache.tomcat.util.buf.ByteChunk;
import org.apache.tomcat.util.net.AbstractEndpoint.Handler.SocketState;
import org.apache.tomcat.util.net.SSLSupport;
import org.apache.tomcat.util.net.SocketWrapperBase;

/**
 * Takes the requests of one connection, one after the other, to Tomcat and the responses back.
 *
 * <p>All input and output waits. So a listener for reading or writing ({@code ReadListener}, {@code WriteListener}) is
 * always told that it may go on, and keeps a thread while the peer makes it wait.
 */
final class SendoffProcessor extends AbstractProcessor {

    static final String NO_UPGRADE = "The Sendoff connector carries no WebSocket and no other upgraded connection: FastCGI "
            + "has no such thing. Let the front proxy these paths to an HTTP connector (docs/java.md)";

    private static final Log log = LogFactory.getLog(SendoffProcessor.class);

    private final SendoffProtocol protocol;
    private final Parameters parameters;
    private final RequestBody requestBody = new RequestBody();
    private final ResponseBody responseBody = new ResponseBody();
    private Connection connection;
    private FileRange file;
    /** Null if the response is not explained. */
    private Explanation explanation;
    private boolean dropsBody;
    /** The thread belongs to the end of an asynchronous request, not to the connection. */
    private boolean isEndOfAsync;

    SendoffProcessor(SendoffProtocol protocol, Adapter adapter) {
        super(adapter);
        this.protocol = protocol;
        parameters = new Parameters(protocol);
        request.setInputBuffer(requestBody);
        response.setOutputBuffer(new Output());
    }

    /** Serves requests until there is none, one goes on asynchronously, or the connector pauses. */
    @Override
    public SocketState service(SocketWrapperBase<?> wrapper) {
        if (isEndOfAsync) {
            isEndOfAsync = false;
            return SocketState.OPEN;
        }
        setSocketWrapper(wrapper);
        connection = (Connection) wrapper.getSocket();
        while (!protocol.isPaused()) {
            if (!nextRequest()) {
                return SocketState.CLOSED;
            }
            serve();
            if (isAsync() && !getErrorState().isError()) {
                return SocketState.LONG;
            }
            request.updateCounters();
            if (end() == SocketState.CLOSED) {
                return SocketState.CLOSED;
            }
        }
        return SocketState.CLOSED;
    }

    private boolean nextRequest() {
        request.getRequestProcessor().setStage(Constants.STAGE_KEEPALIVE);
        requestBody.begin(connection);
        responseBody.begin(connection);
        if (!parameters.read(connection, request)) {
            return false;
        }
        requestBody.expect(request.getContentLengthLong());
        return true;
    }

    private void serve() {
        try {
            request.getRequestProcessor().setStage(Constants.STAGE_PREPARE);
            parseHost(request.getMimeHeaders().getValue("host"));
            if (getErrorState().isIoAllowed() && getErrorState().isError()) {
                getAdapter().log(request, response, 0);
            } else {
                request.getRequestProcessor().setStage(Constants.STAGE_SERVICE);
                beginExplanation();
                getAdapter().service(request, response);
            }
        } catch (InterruptedIOException e) {
            setErrorState(ErrorState.CLOSE_CONNECTION_NOW, e);
        } catch (Throwable t) {
            ExceptionUtils.handleThrowable(t);
            log.error("A request has failed", t);
            response.setStatus(500);
            setErrorState(ErrorState.CLOSE_CLEAN, t);
            getAdapter().log(request, response, 0);
        }
    }

    private void beginExplanation() {
        Connector connector = protocol.getConnector();
        boolean isExplained = connector != null && connection.explains();
        FragmentCount fragments = isExplained ? new FragmentCount() : null;
        FragmentCount.begin(fragments);
        if (isExplained) {
            explanation = new Explanation(connector, request, response);
            responseBody.explain(explanation, fragments, protocol.getUseSendfile());
        }
    }

    private void endExplanation() {
        if (explanation != null) {
            explanation.end();
            explanation = null;
        } else if (protocol.getConnector() == null
                && request.getNote(CoyoteAdapter.ADAPTER_NOTES) instanceof org.apache.catalina.connector.Request seen) {
            protocol.setConnector(seen.getConnector());
        }
    }

    /** Ends the current request, and the connection if it is unusable. */
    private SocketState end() {
        if (getErrorState().isIoAllowed()) {
            action(ActionCode.CLOSE, null);
        }
        boolean isError = getErrorState().isError();
        if (isError && !getErrorState().isIoAllowed()) {
            connection.close();
        }
        request.getRequestProcessor().setStage(Constants.STAGE_ENDED);
        recycle();
        return isError ? SocketState.CLOSED : SocketState.OPEN;
    }

    /** Ends a request that went on asynchronously. */
    @Override
    protected SocketState dispatchEndRequest() {
        isEndOfAsync = !protocol.isPaused() && end() == SocketState.OPEN;
        return isEndOfAsync ? SocketState.OPEN : SocketState.CLOSED;
    }

    @Override
    public void recycle() {
        getAdapter().checkRecycled(request, response);
        endExplanation();
        super.recycle();
        request.recycle();
        response.recycle();
        file = null;
        dropsBody = false;
    }

    @Override
    protected void populateHost() {
        try {
            request.serverName().duplicate(request.localName());
        } catch (IOException e) {
            response.setStatus(400);
            setErrorState(ErrorState.CLOSE_CLEAN, e);
        }
    }

    @Override
    protected void populatePort() {
        request.setServerPort(request.getLocalPort());
    }

    @Override
    protected void prepareResponse() {
        response.setCommitted(true);
        int status = response.getStatus();
        boolean hasBody = status >= 200 && status != 204 && status != 205 && status != 304;
        boolean isHead = "HEAD".equals(request.getMethod());
        if (!hasBody) {
            response.setContentLength(status == 205 ? 0 : -1);
        }
        file = protocol.getUseSendfile() ? FileRange.of(request) : null;
        dropsBody = !hasBody || isHead || file != null;
        if (!hasBody || isHead) {
            file = null;
        }
        ResponseHead.complete(response, hasBody);
        responseBody.head(response);
    }

    @Override
    protected void flush() throws IOException {
        if (!responseBody.isFinished() && file == null) {
            responseBody.flush();
        }
    }

    @Override
    protected void finishResponse() throws IOException {
        if (responseBody.isFinished() || !getErrorState().isIoAllowed()) {
            return;
        }
        if (file == null) {
            responseBody.finish();
        } else {
            responseBody.finish(file);
        }
    }

    /** A servlet's output, after the head. */
    private final class Output implements OutputBuffer {

        @Override
        public int doWrite(ByteBuffer chunk) throws IOException {
            if (!response.isCommitted()) {
                prepareResponse();
            }
            int length = chunk.remaining();
            if (dropsBody) {
                chunk.position(chunk.limit());
                return length;
            }
            try {
                responseBody.write(chunk);
            } catch (IOException e) {
                setErrorState(ErrorState.CLOSE_CONNECTION_NOW, e);
                throw e;
            }
            return length;
        }

        @Override
        public long getBytesWritten() {
            return responseBody.written();
        }
    }

    /** The front has sent {@code 100 Continue}. */
    @Override
    protected void ack(ContinueResponseTiming timing) {
    }

    /** A CGI response has one head. */
    @Override
    protected void earlyHints() {
    }

    @Override
    protected int available(boolean doRead) {
        try {
            if (doRead) {
                requestBody.fill();
            }
            return requestBody.available();
        } catch (IOException e) {
            setErrorState(ErrorState.CLOSE_CONNECTION_NOW, e);
            // The read that follows reports the error.
            return 1;
        }
    }

    @Override
    protected void dispatchNonBlockingRead() {
        // Finds out whether there is a body at all.
        available(true);
        super.dispatchNonBlockingRead();
    }

    @Override
    protected boolean isRequestBodyFullyRead() {
        try {
            return requestBody.isFinished();
        } catch (IOException e) {
            setErrorState(ErrorState.CLOSE_CONNECTION_NOW, e);
            return true;
        }
    }

    @Override
    protected void setRequestBody(ByteChunk body) {
        requestBody.replay(body);
        request.setContentLength(body.getLength());
    }

    @Override
    protected void setSwallowResponse() {
        dropsBody = true;
    }

    /** The library reads the rest of a body. */
    @Override
    protected void disableSwallowRequest() {
    }

    @Override
    protected boolean getPopulateRequestAttributesFromSocket() {
        return false;
    }

    @Override
    protected void populateRequestAttributeRemoteHost() {
        if (request.remoteHost().isNull()) {
            try {
                String address = request.remoteAddr().toString();
                request.remoteHost().setString(InetAddress.getByName(address).getHostName());
            } catch (UnknownHostException e) {
                log.debug("The name of a client is not known", e);
            }
        }
    }

    @Override
    protected void populateSslRequestAttributes() {
        try {
            X509Certificate certificate = parameters.certificate();
            if (certificate != null) {
                request.setAttribute(SSLSupport.CERTIFICATE_KEY, new X509Certificate[] {certificate});
            }
        } catch (CertificateException e) {
            log.warn("The front's parameter SSL_CLIENT_CERT is no X.509 certificate", e);
        }
    }

    /** Never called, since {@link #available} has waited. */
    @Override
    protected void registerReadInterest() {
    }

    @Override
    protected boolean isReadyForWrite() {
        return true;
    }

    @Override
    protected boolean flushBufferedWrite() {
        return false;
    }

    /** There are none, which an application may see at any time. */
    @Override
    protected boolean isTrailerFieldsReady() {
        return true;
    }

    @Override
    protected void doHttpUpgrade(UpgradeToken upgradeToken) {
        throw new UnsupportedOperationException(NO_UPGRADE);
    }

    @Override
    protected ServletConnection getServletConnection() {
        return getSocketWrapper().getServletConnection("fcgi", "");
    }

    @Override
    public void pause() {
        // The endpoint wakes the idle connections.
    }

    @Override
    protected Log getLog() {
        return log;
    }
}
