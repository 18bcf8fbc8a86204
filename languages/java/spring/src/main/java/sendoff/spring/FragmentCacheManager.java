package sendoff.spring;

import java.util.Collection;
import java.util.Collections;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;

import org.springframework.cache.Cache;
import org.springframework.cache.CacheManager;

import sendoff.tomcat.Fragments;

/**
 * Caches of Spring in the memory of fragments (docs/fragments.md). A cache is made when it is first asked for.
 *
 * <pre>{@code
 * @Bean
 * CacheManager cacheManager(ServletContext context) {
 *     return new FragmentCacheManager(Fragments.of(context), 600);
 * }
 * }</pre>
 */
public final class FragmentCacheManager implements CacheManager {

    private final ConcurrentMap<String, Cache> caches = new ConcurrentHashMap<>();
    private final Fragments fragments;
    private final int seconds;

    /**
     * Makes caches on the fragments of a web application.
     *
     * @param seconds the lifetime of their values
     */
    public FragmentCacheManager(Fragments fragments, int seconds) {
        this.fragments = fragments;
        this.seconds = seconds;
    }

    @Override
    public Cache getCache(String name) {
        return caches.computeIfAbsent(name, made -> new FragmentCache(made, fragments, seconds));
    }

    @Override
    public Collection<String> getCacheNames() {
        return Collections.unmodifiableSet(caches.keySet());
    }
}
