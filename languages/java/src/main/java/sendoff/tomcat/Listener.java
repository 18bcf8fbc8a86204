package sendoff.tomcat;

import java.io.IOException;

/** A listening socket. */
final class Listener {

    private final int socket;
    /** An eventfd that ends {@link #accept}. */
    private final int wake;

    private Listener(int socket) throws IOException {
        this.socket = socket;
        this.wake = Native.newWake();
    }

    /** Opens a socket at {@code address}, a path or {@code host:port}. */
    static Listener open(String address, int backlog) throws IOException {
        return new Listener(Native.listen(address, backlog));
    }

    /** Takes over a listening socket that the process has inherited. */
    static Listener inherited(int descriptor) throws IOException {
        if (!Native.isListener(descriptor)) {
            throw new IOException("Descriptor " + descriptor + " of path=\"fd:" + descriptor
                    + "\" is not a listening socket: start Tomcat from a program that passes one on");
        }
        return new Listener(descriptor);
    }

    /** Waits for a connection. Fails after {@link #wake}. */
    Connection accept() throws IOException {
        return new Connection(Native.accept(socket, wake));
    }

    /** Ends the current call of {@link #accept}, or the next one. */
    void wake() {
        Native.wake(wake);
    }

    void close() {
        Native.close(socket);
        Native.close(wake);
    }
}
