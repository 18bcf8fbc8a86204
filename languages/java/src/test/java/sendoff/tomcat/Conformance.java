package sendoff.tomcat;

import java.io.IOException;
import java.io.PrintWriter;
import java.nio.charset.StandardCharsets;
import java.util.Collections;
import java.util.List;

import jakarta.servlet.AsyncContext;
import jakarta.servlet.AsyncEvent;
import jakarta.servlet.AsyncListener;
import jakarta.servlet.ReadListener;
import jakarta.servlet.ServletException;
import jakarta.servlet.ServletInputStream;
import jakarta.servlet.ServletOutputStream;
import jakarta.servlet.WriteListener;
import jakarta.servlet.http.Cookie;
import jakarta.servlet.http.HttpServlet;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;
import jakarta.servlet.http.HttpUpgradeHandler;
import jakarta.servlet.http.WebConnection;

/** Follows the path; the tests compare the results of two connectors. */
public final class Conformance extends HttpServlet {

    private static final long serialVersionUID = 1L;

    @Override
    protected void service(HttpServletRequest request, HttpServletResponse response)
            throws ServletException, IOException {
        switch (request.getPathInfo()) {
            case "/size" -> size(request, response);
            case "/pieces" -> pieces(request, response);
            case "/fields" -> fields(response);
            case "/reset" -> reset(response);
            case "/committed" -> committed(response);
            case "/throw" -> throw new ServletException("before the head has left");
            case "/throw-late" -> throwLate(response);
            case "/request" -> request(request, response);
            case "/parameters" -> response.getWriter().print(new java.util.TreeMap<>(request.getParameterMap()).keySet());
            case "/echo" -> request.getInputStream().transferTo(response.getOutputStream());
            case "/characters" -> request.getReader().transferTo(response.getWriter());
            case "/finished" -> finished(request, response);
            case "/half" -> response.getWriter().print(request.getInputStream().read());
            case "/file" -> file(request, response);
            case "/status" -> response.setStatus(number(request, "n"));
            case "/error" -> response.sendError(number(request, "n"), "what happened");
            case "/redirect" -> response.sendRedirect("elsewhere?a=b");
            case "/async" -> async(request, response);
            case "/async-dispatch" -> dispatch(request);
            case "/async-late" -> late(request, response);
            case "/async-timeout" -> timeout(request, response);
            case "/listeners" -> new Copier(request, response).begin();
            case "/upgrade" -> request.upgrade(Upgraded.class);
            case "/buffer" -> response.getWriter().print(response.getBufferSize());
            case "/empty" -> { }
            default -> response.sendError(404);
        }
    }

    private static int number(HttpServletRequest request, String name) {
        return Integer.parseInt(request.getParameter(name));
    }

    private static byte[] pattern(int length) {
        byte[] bytes = new byte[length];
        for (int i = 0; i < length; i++) {
            bytes[i] = (byte) (i * 7 + i / 256);
        }
        return bytes;
    }

    /** One write, with its length announced. */
    private static void size(HttpServletRequest request, HttpServletResponse response) throws IOException {
        byte[] bytes = pattern(number(request, "n"));
        response.setContentType("application/octet-stream");
        response.setContentLength(bytes.length);
        response.getOutputStream().write(bytes);
    }

    /** Many writes; the first of them are flushed. */
    private static void pieces(HttpServletRequest request, HttpServletResponse response) throws IOException {
        byte[] bytes = pattern(number(request, "n"));
        int piece = number(request, "piece");
        int flushes = number(request, "flushes");
        ServletOutputStream out = response.getOutputStream();
        for (int at = 0; at < bytes.length; at += piece) {
            out.write(bytes, at, Math.min(piece, bytes.length - at));
            if (flushes-- > 0) {
                out.flush();
            }
        }
    }

    private static void fields(HttpServletResponse response) throws IOException {
        response.setContentType("text/plain;charset=utf-8");
        response.setLocale(java.util.Locale.GERMANY);
        response.addHeader("X-Twice", "1");
        response.addHeader("X-Twice", "2");
        response.addHeader("X-Latin", "gr\u00fc\u00df");
        response.addHeader("X-Break", "a\r\nX-Injected: b");
        response.addDateHeader("Last-Modified", 0);
        response.addCookie(new Cookie("a", "1"));
        response.addCookie(new Cookie("b", "2"));
        response.getWriter().print("gr\u00fc\u00df");
    }

    private static void reset(HttpServletResponse response) throws IOException {
        response.setHeader("X-Gone", "1");
        response.setStatus(418);
        response.getWriter().print("gone");
        response.reset();
        response.getWriter().print("stays");
    }

    private static void committed(HttpServletResponse response) throws IOException {
        PrintWriter out = response.getWriter();
        out.print(response.isCommitted());
        response.flushBuffer();
        out.print(response.isCommitted());
        response.setStatus(500);
        response.setHeader("X-Late", "1");
        try {
            response.reset();
        } catch (IllegalStateException e) {
            out.print(" too late");
        }
    }

    private static void throwLate(HttpServletResponse response) throws IOException, ServletException {
        response.getOutputStream().write(pattern(20_000));
        response.flushBuffer();
        throw new ServletException("after the head has left");
    }

    private static void request(HttpServletRequest request, HttpServletResponse response) throws IOException {
        response.setContentType("text/plain;charset=utf-8");
        PrintWriter out = response.getWriter();
        out.println(request.getMethod() + " " + request.getRequestURI() + " " + request.getQueryString() + " "
                + request.getPathInfo() + " " + request.getContextPath() + " " + request.getServletPath());
        out.println(request.getScheme() + " " + request.isSecure() + " " + request.getServerName());
        out.println(request.getRemoteAddr() + " " + request.getRemoteUser() + " " + request.getAuthType());
        out.println(request.getLocalAddr() + " " + request.getContentLengthLong() + " " + request.getContentType() + " "
                + request.getCharacterEncoding());
        List<String> names = Collections.list(request.getHeaderNames());
        Collections.sort(names);
        for (String name : names) {
            // The ports of the two connectors differ.
            if (!name.equals("host")) {
                out.println(name + ": " + request.getHeader(name));
            }
        }
        out.println(request.getParameterMap().keySet() + " " + Collections.list(request.getAttributeNames()));
    }

    /** Hands a file over by Tomcat's attributes. */
    private static void file(HttpServletRequest request, HttpServletResponse response) throws IOException {
        if (!Boolean.TRUE.equals(request.getAttribute("org.apache.tomcat.sendfile.support"))) {
            throw new IOException("no sendfile");
        }
        long start = number(request, "start");
        long end = number(request, "end");
        boolean isAnnounced = request.getParameter("unannounced") == null;
        if (isAnnounced) {
            response.setContentLengthLong(end - start);
        }
        request.setAttribute("org.apache.tomcat.sendfile.filename", request.getParameter("path"));
        request.setAttribute("org.apache.tomcat.sendfile.start", start);
        request.setAttribute("org.apache.tomcat.sendfile.end", end);
        if (!isAnnounced) {
            // Otherwise Tomcat announces the length of the written bytes, 0.
            response.flushBuffer();
        }
    }

    /** Reads while there is something to read, and never the end. */
    private static void finished(HttpServletRequest request, HttpServletResponse response) throws IOException {
        ServletInputStream in = request.getInputStream();
        response.getOutputStream().println(in.available() > 0);
        byte[] piece = new byte[1000];
        while (!in.isFinished()) {
            response.getOutputStream().write(piece, 0, in.read(piece));
        }
        response.getOutputStream().println(in.available());
    }

    private static void async(HttpServletRequest request, HttpServletResponse response) {
        AsyncContext context = request.startAsync();
        context.start(() -> {
            try {
                response.getOutputStream().write(pattern(100_000));
                context.complete();
            } catch (IOException e) {
                throw new IllegalStateException(e);
            }
        });
    }

    private static void dispatch(HttpServletRequest request) {
        AsyncContext context = request.startAsync();
        context.start(() -> context.dispatch("/servlet/request"));
    }

    /** Sends a part of the response, and never the rest. */
    private static void late(HttpServletRequest request, HttpServletResponse response) throws IOException {
        response.getOutputStream().write(pattern(20_000));
        response.flushBuffer();
        request.startAsync().setTimeout(100);
    }

    private static void timeout(HttpServletRequest request, HttpServletResponse response) {
        AsyncContext context = request.startAsync();
        context.setTimeout(100);
        context.addListener(new AsyncListener() {
            @Override
            public void onTimeout(AsyncEvent event) throws IOException {
                response.getWriter().print("timed out");
                context.complete();
            }

            @Override
            public void onComplete(AsyncEvent event) {
            }

            @Override
            public void onError(AsyncEvent event) {
            }

            @Override
            public void onStartAsync(AsyncEvent event) {
            }
        });
    }

    /** Reads and writes through listeners. */
    private static final class Copier implements ReadListener, WriteListener {

        private final AsyncContext context;
        private final ServletInputStream in;
        private final ServletOutputStream out;
        private final java.io.ByteArrayOutputStream body = new java.io.ByteArrayOutputStream();
        private boolean isWritten;

        Copier(HttpServletRequest request, HttpServletResponse response) throws IOException {
            context = request.startAsync();
            in = request.getInputStream();
            out = response.getOutputStream();
        }

        void begin() {
            in.setReadListener(this);
        }

        @Override
        public void onDataAvailable() throws IOException {
            byte[] piece = new byte[1000];
            while (in.isReady() && !in.isFinished()) {
                int length = in.read(piece);
                if (length > 0) {
                    body.write(piece, 0, length);
                }
            }
        }

        @Override
        public void onAllDataRead() {
            out.setWriteListener(this);
        }

        @Override
        public void onWritePossible() throws IOException {
            if (out.isReady() && !isWritten) {
                isWritten = true;
                out.write(body.toByteArray());
            }
            if (out.isReady()) {
                out.write("end".getBytes(StandardCharsets.US_ASCII));
                context.complete();
            }
        }

        @Override
        public void onError(Throwable t) {
            context.complete();
        }
    }

    /** Is never initialised. */
    public static final class Upgraded implements HttpUpgradeHandler {

        @Override
        public void init(WebConnection connection) {
        }

        @Override
        public void destroy() {
        }
    }
}
