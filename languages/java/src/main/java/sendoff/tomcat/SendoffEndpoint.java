package sendoff.tomcat;

import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;

import org.apache.juli.logging.Log;
import org.apache.juli.logging.LogFactory;
import org.apache.tomcat.util.net.AbstractEndpoint;
import org.apache.tomcat.util.net.SSLHostConfig;
import org.apache.tomcat.util.net.SocketEvent;
import org.apache.tomcat.util.net.SocketProcessorBase;
import org.apache.tomcat.util.net.SocketWrapperBase;

/** Accepts connections on the listening socket and gives each to a thread of the connector. */
final class SendoffEndpoint extends AbstractEndpoint<Connection, Connection> {

    private static final Log log = LogFactory.getLog(SendoffEndpoint.class);

    /** Prefix of {@code path} for an inherited descriptor. */
    private static final String DESCRIPTOR = "fd:";

    private String path;
    private String pathPermissions;
    private int fragments = 32;
    private Listener listener;

    String getPath() {
        return path;
    }

    void setPath(String path) {
        this.path = path;
    }

    void setPathPermissions(String pathPermissions) {
        this.pathPermissions = pathPermissions;
    }

    int getFragments() {
        return fragments;
    }

    void setFragments(int mebibytes) {
        fragments = mebibytes;
    }

    @Override
    public String getId() {
        return path;
    }

    @Override
    public void bind() throws Exception {
        if (path == null) {
            throw new IllegalArgumentException(
                    "The Sendoff connector has no attribute path: give the path of a UNIX socket, host:port, or fd:0");
        }
        // Before the applications start.
        Native.shareFragments((long) fragments << 20);
        listener = path.startsWith(DESCRIPTOR)
                ? Listener.inherited(Integer.parseInt(path.substring(DESCRIPTOR.length())))
                : Listener.open(path, getAcceptCount());
        if (pathPermissions != null && path.startsWith("/")) {
            Files.setPosixFilePermissions(Path.of(path), PosixFilePermissions.fromString(pathPermissions));
        }
    }

    @Override
    public void unbind() {
        doCloseServerSocket();
        Handler<Connection> handler = getHandler();
        if (handler != null) {
            handler.recycle();
        }
    }

    @Override
    public void startInternal() {
        if (running) {
            return;
        }
        running = true;
        paused = false;
        if (getExecutor() == null) {
            createExecutor();
        }
        initializeConnectionLatch();
        startAcceptorThread();
    }

    /** Refuses further connections, and further requests on existing ones. */
    @Override
    public void pause() {
        super.pause();
        stopConnections();
    }

    private void stopConnections() {
        getConnections().forEach(wrapper -> wrapper.getSocket().stop());
    }

    @Override
    public void stopInternal() {
        if (!paused) {
            pause();
        }
        if (running) {
            running = false;
            acceptor.stopMillis(10_000);
            // The acceptor may have been about to add one.
            stopConnections();
        }
        shutdownExecutor();
    }

    /** Ends the acceptor's wait; the listening socket itself may be shared with other processes. */
    @Override
    protected void unlockAccept() {
        if (listener != null) {
            listener.wake();
        }
    }

    @Override
    protected void doCloseServerSocket() {
        if (listener != null) {
            listener.close();
            listener = null;
        }
    }

    @Override
    protected Connection serverSocketAccept() throws Exception {
        return listener.accept();
    }

    @Override
    protected boolean setSocketOptions(Connection connection) {
        ConnectionWrapper wrapper = new ConnectionWrapper(connection, this);
        connections.put(connection, wrapper);
        return processSocket(wrapper, SocketEvent.OPEN_READ, true);
    }

    void forget(Connection connection) {
        connections.remove(connection);
    }

    @Override
    protected void destroySocket(Connection connection) {
        countDownConnection();
        forget(connection);
        connection.close();
    }

    @Override
    protected SocketProcessorBase<Connection> createSocketProcessor(SocketWrapperBase<Connection> wrapper,
            SocketEvent event) {
        return new SocketProcessor(wrapper, event);
    }

    /** Passes an event of a connection to the connector's handler, in a thread of the connector. */
    private final class SocketProcessor extends SocketProcessorBase<Connection> {

        SocketProcessor(SocketWrapperBase<Connection> wrapper, SocketEvent event) {
            super(wrapper, event);
        }

        @Override
        protected void doRun() {
            if (getHandler().process(socketWrapper, event) == Handler.SocketState.CLOSED) {
                socketWrapper.close();
            }
        }
    }

    @Override
    protected InetSocketAddress getLocalAddress() {
        return null;
    }

    @Override
    protected Log getLog() {
        return log;
    }

    @Override
    protected void createSSLContext(SSLHostConfig sslHostConfig) throws IOException {
        throw new IOException("The Sendoff connector does not speak TLS");
    }
}
