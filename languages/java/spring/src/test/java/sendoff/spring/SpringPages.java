package sendoff.spring;

import java.io.IOException;
import java.io.Serializable;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Callable;
import java.util.concurrent.atomic.AtomicInteger;

import jakarta.servlet.http.HttpServlet;
import jakarta.servlet.http.HttpServletRequest;
import jakarta.servlet.http.HttpServletResponse;

import org.springframework.cache.Cache;
import org.springframework.cache.interceptor.SimpleKey;

import sendoff.tomcat.Fragments;

/** Takes a cache of Spring through its methods. */
public final class SpringPages extends HttpServlet {

    private static final long serialVersionUID = 1;

    private transient FragmentCacheManager caches;

    /** A key that has the text of another one. */
    private record Twin(int number) implements Serializable {

        @Override
        public String toString() {
            return "twin";
        }
    }

    @Override
    public void init() {
        caches = new FragmentCacheManager(Fragments.of(getServletContext()), 600);
    }

    @Override
    protected void doGet(HttpServletRequest request, HttpServletResponse response) throws IOException {
        response.getWriter().print(steps());
    }

    private List<Object> steps() {
        Cache cache = caches.getCache("menus");
        Cache other = caches.getCache("other");
        List<Object> steps = new ArrayList<>();
        steps.add(cache.get("a"));
        cache.put("a", List.of(1, 2));
        steps.add(cache.get("a").get());
        steps.add(other.get("a"));
        cache.put("null", null);
        steps.add(cache.get("null").get());
        steps.add(cache.putIfAbsent("a", 3).get());
        AtomicInteger loads = new AtomicInteger();
        Callable<Integer> loader = loads::incrementAndGet;
        SimpleKey key = new SimpleKey("x", 1);
        steps.add(cache.get(key, loader) + cache.get(new SimpleKey("x", 1), loader));
        steps.add(cache.get(new Twin(1), loader));
        steps.add(cache.get(new Twin(2), loader));
        steps.add(cache.get(new Twin(2)));
        steps.add(cache.get(new Twin(1), Integer.class));
        cache.evict("a");
        steps.add(cache.get("a"));
        cache.put("large", "old");
        cache.put("large", "x".repeat(2_000_000));
        steps.add(cache.get("large"));
        other.put("kept", 'k');
        cache.clear();
        steps.add(cache.get(key));
        steps.add(other.get("kept").get());
        try {
            cache.get("fails", () -> {
                throw new IOException("no value");
            });
        } catch (Cache.ValueRetrievalException e) {
            steps.add(e.getCause().getMessage());
        }
        steps.add(cache.get("fails"));
        try {
            cache.put("object", new Object());
        } catch (IllegalArgumentException e) {
            steps.add(e.getMessage());
        }
        return steps;
    }
}
