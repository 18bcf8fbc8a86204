package sendoff.tomcat;

import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.CompletionHandler;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;

import org.apache.tomcat.util.net.ApplicationBufferHandler;
import org.apache.tomcat.util.net.SSLSupport;
import org.apache.tomcat.util.net.SendfileDataBase;
import org.apache.tomcat.util.net.SendfileState;
import org.apache.tomcat.util.net.SocketWrapperBase;

/**
 * What Tomcat keeps of a connection between two events. The processor reads and writes on the {@link Connection} itself, so
 * the methods for input and output of this class are never called.
 */
final class ConnectionWrapper extends SocketWrapperBase<Connection> {

    ConnectionWrapper(Connection connection, SendoffEndpoint endpoint) {
        super(connection, endpoint);
    }

    @Override
    protected void doClose() {
        ((SendoffEndpoint) getEndpoint()).forget(getSocket());
        getSocket().close();
    }

    @Override
    public boolean hasDataToWrite() {
        return false;
    }

    @Override
    public boolean canWrite() {
        return true;
    }

    @Override
    public boolean isReadyForRead() {
        return true;
    }

    /** An asynchronous request has ended, and its connection needs a thread for the next one. */
    @Override
    public void registerReadInterest() {
        if (!((SendoffEndpoint) getEndpoint()).serve(this)) {
            close();
        }
    }

    @Override
    public void registerWriteInterest() {
    }

    @Override
    protected void populateRemoteHost() {
    }

    @Override
    protected void populateRemoteAddr() {
    }

    @Override
    protected void populateRemotePort() {
    }

    @Override
    protected void populateLocalName() {
    }

    @Override
    protected void populateLocalAddr() {
    }

    @Override
    protected void populateLocalPort() {
    }

    @Override
    public void setAppReadBufHandler(ApplicationBufferHandler handler) {
    }

    @Override
    public SSLSupport getSslSupport() {
        return null;
    }

    @Override
    public int read(boolean block, byte[] b, int off, int len) {
        throw notHere();
    }

    @Override
    public int read(boolean block, ByteBuffer to) {
        throw notHere();
    }

    @Override
    protected boolean flushNonBlocking() {
        throw notHere();
    }

    @Override
    protected void doWrite(boolean block, ByteBuffer from) {
        throw notHere();
    }

    @Override
    public SendfileDataBase createSendfileData(String filename, long pos, long length) {
        throw notHere();
    }

    @Override
    public SendfileState processSendfile(SendfileDataBase sendfileData) {
        throw notHere();
    }

    @Override
    public void doClientAuth(SSLSupport sslSupport) throws IOException {
        throw new IOException("The front asks clients for certificates, not this connector");
    }

    @Override
    protected <A> OperationState<A> newOperationState(boolean read, ByteBuffer[] buffers, int offset, int length,
            BlockingMode block, long timeout, TimeUnit unit, A attachment, CompletionCheck check,
            CompletionHandler<Long, ? super A> handler, Semaphore semaphore, VectoredIOCompletionHandler<A> completion) {
        throw notHere();
    }

    private static UnsupportedOperationException notHere() {
        return new UnsupportedOperationException("SendoffProcessor reads and writes on the Connection");
    }
}
