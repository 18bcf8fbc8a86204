package sendoff.tomcat;

import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.concurrent.Executor;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.TimeUnit;

import org.apache.juli.logging.Log;
import org.apache.juli.logging.LogFactory;
import org.apache.tomcat.util.net.AbstractEndpoint;
import org.apache.tomcat.util.net.SSLHostConfig;
import org.apache.tomcat.util.net.SocketEvent;
import org.apache.tomcat.util.net.SocketProcessorBase;
import org.apache.tomcat.util.net.SocketWrapperBase;
import org.apache.tomcat.util.threads.TaskQueue;
import org.apache.tomcat.util.threads.TaskThreadFactory;
import org.apache.tomcat.util.threads.ThreadPoolExecutor;

/**
 * Accepts connections on the listening socket and gives each to a thread of the connector.
 *
 * <p>A connection keeps its thread while it waits for a request, so connections have threads of their own: the connector's
 * executor has as many again, for what asynchronous requests start and for their ends.
 */
final class SendoffEndpoint extends AbstractEndpoint<Connection, Connection> {

    private static final Log log = LogFactory.getLog(SendoffEndpoint.class);

    /** Prefix of {@code path} for an inherited descriptor. */
    private static final String DESCRIPTOR = "fd:";

    private String path;
    private String pathPermissions;
    private int fragments = 32;
    private Listener listener;
    /** Null if the connector shares an executor with others, which serves the connections then. */
    private ThreadPoolExecutor connectionThreads;

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
            connectionThreads = connectionThreads();
        }
        initializeConnectionLatch();
        startAcceptorThread();
    }

    /** At most as many threads as the executor has, which end when they have been idle for a minute. */
    private ThreadPoolExecutor connectionThreads() {
        TaskQueue queue = new TaskQueue();
        TaskThreadFactory factory = new TaskThreadFactory(getName() + "-connection-", getDaemon(), getThreadPriority());
        ThreadPoolExecutor threads = new ThreadPoolExecutor(0, getMaxThreads(), 60, TimeUnit.SECONDS, queue, factory);
        queue.setParent(threads);
        return threads;
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
        if (connectionThreads != null) {
            connectionThreads.shutdown();
            connectionThreads = null;
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
        return serve(wrapper);
    }

    /** Has a thread take the requests of a connection. Returns false if the connector has stopped. */
    boolean serve(ConnectionWrapper wrapper) {
        Executor threads = connectionThreads;
        if (threads == null) {
            return processSocket(wrapper, SocketEvent.OPEN_READ, true);
        }
        try {
            threads.execute(new SocketProcessor(wrapper, SocketEvent.OPEN_READ));
            return true;
        } catch (RejectedExecutionException e) {
            return false;
        }
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
