package sendoff.tomcat;

import org.apache.catalina.connector.Connector;
import org.apache.coyote.AbstractProtocol;
import org.apache.coyote.Processor;
import org.apache.coyote.UpgradeProtocol;
import org.apache.coyote.UpgradeToken;
import org.apache.juli.logging.Log;
import org.apache.juli.logging.LogFactory;
import org.apache.tomcat.util.net.SSLHostConfig;
import org.apache.tomcat.util.net.SocketWrapperBase;

/**
 * The connector: a listening FastCGI socket to which a Sendoff front, or any web server that speaks FastCGI, connects.
 *
 * <pre>{@code
 * <Connector protocol="sendoff.tomcat.SendoffProtocol" path="/run/tomcat10/sendoff.sock" threads="50"/>
 * }</pre>
 *
 * A connection carries one request at a time and keeps a thread while it is open and no asynchronous request is running.
 */
public final class SendoffProtocol extends AbstractProtocol<Connection> {

    private static final Log log = LogFactory.getLog(SendoffProtocol.class);

    private boolean tomcatAuthentication = true;
    private boolean tomcatAuthorization;
    /** The connector, after its first request: Tomcat does not pass it to protocols. */
    private volatile Connector connector;

    /** Called by Tomcat for the attribute {@code protocol}. */
    public SendoffProtocol() {
        super(new SendoffEndpoint());
    }

    Connector getConnector() {
        return connector;
    }

    void setConnector(Connector connector) {
        this.connector = connector;
    }

    private SendoffEndpoint endpoint() {
        return (SendoffEndpoint) getEndpoint();
    }

    /** The address of the connector. */
    public String getPath() {
        return endpoint().getPath();
    }

    /**
     * Sets where the connector listens: the path of a UNIX socket, {@code host:port}, {@code :port}, or {@code fd:N} for a
     * listening socket that the process has inherited.
     */
    public void setPath(String path) {
        endpoint().setPath(path);
    }

    /** Sets the permissions of a UNIX socket, as in {@code rw-rw----}. Without it, the process's umask decides. */
    public void setPathPermissions(String permissions) {
        endpoint().setPathPermissions(permissions);
    }

    /** Sets the number of threads, which is the number of requests at once. */
    public void setThreads(int threads) {
        setMaxThreads(threads);
    }

    /** The memory for fragments, in MiB. */
    public int getFragments() {
        return endpoint().getFragments();
    }

    /**
     * Sets the memory for {@link Fragments} of this process, in MiB, from 8 to 4096; the default is 32. With 0 fragments are
     * kept only in the memory of a pool that has some, which counts in any case.
     */
    public void setFragments(int mebibytes) {
        endpoint().setFragments(mebibytes);
    }

    /** True if files of {@code org.apache.tomcat.sendfile.filename} are handed over. */
    public boolean getUseSendfile() {
        return endpoint().getUseSendfile();
    }

    /** Sets whether servlets see {@code org.apache.tomcat.sendfile.support}; the default is true. */
    public void setUseSendfile(boolean useSendfile) {
        endpoint().setUseSendfile(useSendfile);
    }

    /** True if Tomcat authenticates users; otherwise the front does, and {@code REMOTE_USER} is the user. */
    public boolean getTomcatAuthentication() {
        return tomcatAuthentication;
    }

    /** Sets who authenticates users; the default is Tomcat. Means the same as in the AJP connector. */
    public void setTomcatAuthentication(boolean tomcatAuthentication) {
        this.tomcatAuthentication = tomcatAuthentication;
    }

    /** True if the front authenticates users and Tomcat looks up their roles. */
    public boolean getTomcatAuthorization() {
        return tomcatAuthorization;
    }

    /** Sets whether Tomcat looks up the roles of the front's users; the default is false. */
    public void setTomcatAuthorization(boolean tomcatAuthorization) {
        this.tomcatAuthorization = tomcatAuthorization;
    }

    /** The size of Tomcat's own response buffers, in bytes. */
    @Override
    public int getDesiredBufferSize() {
        return 8 * 1024;
    }

    @Override
    protected Log getLog() {
        return log;
    }

    @Override
    protected String getNamePrefix() {
        return "sendoff";
    }

    @Override
    protected String getProtocolName() {
        return "Sendoff";
    }

    @Override
    protected Processor createProcessor() {
        return new SendoffProcessor(this, getAdapter());
    }

    @Override
    protected UpgradeProtocol getNegotiatedProtocol(String name) {
        return null;
    }

    @Override
    protected UpgradeProtocol getUpgradeProtocol(String name) {
        return null;
    }

    @Override
    protected Processor createUpgradeProcessor(SocketWrapperBase<?> socket, UpgradeToken upgradeToken) {
        throw new IllegalStateException(SendoffProcessor.NO_UPGRADE);
    }

    @Override
    public void addSslHostConfig(SSLHostConfig sslHostConfig) {
        refuseTls();
    }

    @Override
    public void addSslHostConfig(SSLHostConfig sslHostConfig, boolean replace) {
        refuseTls();
    }

    private static void refuseTls() {
        log.warn("SSLHostConfig is ignored: the Sendoff front in front of this connector ends TLS");
    }

    @Override
    public SSLHostConfig[] findSslHostConfigs() {
        return new SSLHostConfig[0];
    }

    @Override
    public void addUpgradeProtocol(UpgradeProtocol upgradeProtocol) {
        log.warn("UpgradeProtocol " + upgradeProtocol.getClass().getName()
                + " is ignored: the Sendoff front in front of this connector speaks HTTP/2");
    }

    @Override
    public UpgradeProtocol[] findUpgradeProtocols() {
        return new UpgradeProtocol[0];
    }
}
