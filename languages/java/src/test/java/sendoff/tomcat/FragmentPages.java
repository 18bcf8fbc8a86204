package sendoff.tomcat;

import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;

import jakarta.servlet.http.HttpServlet;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;

/** Pages that are made of fragments. Each fragment says how many were made before it. */
public final class FragmentPages extends HttpServlet {

    private static final long serialVersionUID = 1;

    private static final Path FOLDER = Path.of(System.getProperty("catalina.base"));

    private transient Fragments fragments;

    @Override
    public void init() {
        fragments = Fragments.of(getServletContext());
    }

    @Override
    protected void doGet(HttpServletRequest request, HttpServletResponse response) throws IOException {
        response.setContentType("text/plain;charset=utf-8");
        response.setHeader("X-Process", String.valueOf(ProcessHandle.current().pid()));
        String page;
        try {
            page = page(request);
        } catch (IOException e) {
            response.setStatus(500);
            page = e.getMessage();
        }
        response.getWriter().print(page);
    }

    private String page(HttpServletRequest request) throws IOException {
        String key = parameter(request, "key", "k");
        String tag = request.getParameter("tag");
        switch (request.getPathInfo()) {
            case "/one":
                return one(request, key);
            case "/three":
                StringBuilder page = new StringBuilder();
                for (int i = 0; i < 3; i++) {
                    String text = i + " ü ";
                    page.append(fragments.getText("three" + i, 600, () -> text));
                }
                return page.toString();
            case "/keys":
                return keys();
            case "/nested":
                return fragments.getText(key, 600, () -> fragments.getText(key, 600, () -> "inner") + " outer");
            case "/fetch":
                byte[] kept = fragments.fetch(key);
                return kept == null ? "none" : new String(kept, StandardCharsets.UTF_8);
            case "/store":
                long since = fragments.purges();
                if (tag != null) {
                    fragments.purge(tag);
                }
                return String.valueOf(fragments.store(key, 600, new byte[] {'s'}, since, "post-1"));
            case "/delete":
                fragments.delete(key);
                return "deleted";
            case "/purge":
                if (tag == null) {
                    fragments.purgeAll();
                } else {
                    fragments.purge(tag);
                }
                return "purged";
            default:
                return "hello";
        }
    }

    /** Keeps fragments whose keys are texts in Java and no texts in UTF-8, and purges by such tags. */
    private String keys() {
        String[] names = {"?", "\ud800", "\udc00", "a\ud800b", "a\ud801b", "\ud83d\ude00", "\ude00\ud83d", "ü"};
        StringBuilder page = new StringBuilder();
        for (int round = 0; round < 2; round++) {
            fragments.purge("\udc01", "a\ud802b");
            for (int i = 0; i < names.length; i++) {
                String text = round + "-" + i + " ";
                page.append(fragments.getText(names[i], 600, () -> text, names[i]));
            }
        }
        fragments.purge("\udc00");
        return page.append(fragments.fetch("\udc00") == null).append(fragments.fetch("?") != null).toString();
    }

    private String one(HttpServletRequest request, String key) throws IOException {
        int seconds = Integer.parseInt(parameter(request, "ttl", "600"));
        int size = Integer.parseInt(parameter(request, "size", "0"));
        String[] tags = new String[Integer.parseInt(parameter(request, "tags", "1"))];
        for (int i = 0; i < tags.length; i++) {
            tags[i] = "post-" + (i + 1);
        }
        return fragments.getText(key, seconds, () -> {
            if (request.getParameter("wait") != null) {
                Files.readString(FOLDER.resolve("pipe"));
            }
            if (request.getParameter("dies") != null) {
                Runtime.getRuntime().halt(9);
            }
            if (request.getParameter("fails") != null) {
                throw new IOException("no fragment");
            }
            if (request.getParameter("purges") != null) {
                fragments.purge("post-1");
            }
            return "run " + run() + "x".repeat(size);
        }, tags);
    }

    private static long run() throws IOException {
        Path runs = FOLDER.resolve("runs");
        Files.write(runs, new byte[] {'.'}, StandardOpenOption.CREATE, StandardOpenOption.APPEND);
        return Files.size(runs);
    }

    private static String parameter(HttpServletRequest request, String name, String usual) {
        String value = request.getParameter(name);
        return value == null ? usual : value;
    }
}
