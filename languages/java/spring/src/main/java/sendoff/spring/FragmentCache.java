package sendoff.spring;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.NotSerializableException;
import java.io.ObjectInputStream;
import java.io.ObjectOutputStream;
import java.io.Serializable;
import java.io.UncheckedIOException;
import java.util.concurrent.Callable;
import java.util.concurrent.atomic.AtomicReference;

import org.springframework.cache.support.AbstractValueAdaptingCache;
import org.springframework.core.ConfigurableObjectInputStream;
import org.springframework.util.ClassUtils;

import sendoff.tomcat.Fragments;

/**
 * A cache of Spring whose values are fragments: all processes of the pool have them, and purges of the site's pages by tags
 * concern them.
 *
 * <p>A value is kept in serialized form together with its key, and found by the text of the key ({@code toString()}). So
 * keys and values must be {@link Serializable}, and equal keys must have equal texts. Keys with one text take each other's
 * place and never get each other's value.
 *
 * <p>{@link #get(Object, Callable)} ({@code @Cacheable(sync = true)}) has other threads and processes wait for the one that
 * loads.
 */
public final class FragmentCache extends AbstractValueAdaptingCache {

    private final String name;
    private final Fragments fragments;
    private final int seconds;
    private final String[] tags;

    /** A key and its value in the store. */
    private record Entry(Object key, Object value) implements Serializable {
    }

    /**
     * Makes a cache.
     *
     * @param seconds the lifetime of its values
     * @param tags tags of all values, for purges
     */
    public FragmentCache(String name, Fragments fragments, int seconds, String... tags) {
        super(true);
        this.name = name;
        this.fragments = fragments;
        this.seconds = seconds;
        this.tags = new String[tags.length + 1];
        System.arraycopy(tags, 0, this.tags, 1, tags.length);
        this.tags[0] = "spring-cache:" + name;
    }

    @Override
    public String getName() {
        return name;
    }

    @Override
    public Object getNativeCache() {
        return fragments;
    }

    @Override
    protected Object lookup(Object key) {
        return value(key, fragments.fetch(text(key)));
    }

    @Override
    @SuppressWarnings("unchecked")
    public <T> T get(Object key, Callable<T> loader) {
        AtomicReference<Object> loaded = new AtomicReference<>();
        byte[] kept = fragments.get(text(key), seconds, () -> {
            loaded.set(toStoreValue(load(key, loader)));
            return bytes(key, loaded.get());
        }, tags);
        Object value = loaded.get() == null ? value(key, kept) : loaded.get();
        // Another key with the same text, or a class that has changed since.
        return (T) fromStoreValue(value == null ? toStoreValue(load(key, loader)) : value);
    }

    private static <T> T load(Object key, Callable<T> loader) {
        try {
            return loader.call();
        } catch (Exception e) {
            throw new ValueRetrievalException(key, loader, e);
        }
    }

    @Override
    public void put(Object key, Object value) {
        if (!fragments.store(text(key), seconds, bytes(key, toStoreValue(value)), tags)) {
            // A value that does not fit must not leave an older one behind.
            evict(key);
        }
    }

    @Override
    public ValueWrapper putIfAbsent(Object key, Object value) {
        ValueWrapper there = get(key);
        if (there == null) {
            put(key, value);
        }
        return there;
    }

    @Override
    public void evict(Object key) {
        fragments.delete(text(key));
    }

    /** Forgets all values, also those of other caches with this name in the pool. */
    @Override
    public void clear() {
        fragments.purge(tags[0]);
    }

    private String text(Object key) {
        return "spring-cache:" + name + '\0' + key;
    }

    private static byte[] bytes(Object key, Object value) {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        try (ObjectOutputStream out = new ObjectOutputStream(bytes)) {
            out.writeObject(new Entry(key, value));
        } catch (NotSerializableException e) {
            throw new IllegalArgumentException("not serializable: " + e.getMessage(), e);
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
        return bytes.toByteArray();
    }

    /** The value of a kept entry; null if there is none for this key. */
    private static Object value(Object key, byte[] kept) {
        if (kept == null) {
            return null;
        }
        ClassLoader loader = ClassUtils.getDefaultClassLoader();
        try (ObjectInputStream in = new ConfigurableObjectInputStream(new ByteArrayInputStream(kept), loader)) {
            return in.readObject() instanceof Entry entry && entry.key.equals(key) ? entry.value : null;
        } catch (IOException | ClassNotFoundException e) {
            // Another version of the application has stored it.
            return null;
        }
    }
}
