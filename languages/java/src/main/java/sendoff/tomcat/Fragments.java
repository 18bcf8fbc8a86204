package sendoff.tomcat;

import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Objects;

import jakarta.servlet.ServletContext;

/**
 * Fragments of pages: a menu, a list of the newest posts, a footer. One thread of one process makes a fragment, and all
 * processes of the pool send it until its time is over or it is purged (docs/fragments.md).
 *
 * <pre>{@code
 * Fragments fragments = Fragments.of(getServletContext());
 * byte[] menu = fragments.get("menu", 600, () -> renderMenu(), "menu", "posts");
 * }</pre>
 *
 * Where no Sendoff connector runs, fragments are made each time. Instances may be used by any thread.
 */
public final class Fragments {

    /**
     * Makes a fragment.
     *
     * @param <T> the type of the fragment, {@code byte[]} or {@code String}
     * @param <E> the type of exceptions that it throws
     */
    @FunctionalInterface
    public interface Maker<T, E extends Exception> {

        /** Returns the fragment, which must not be null. */
        T make() throws E;
    }

    /** The longest lifetime in seconds: ten years. */
    private static final int LONGEST = 10 * 365 * 86_400;

    /** The most tags of a fragment. */
    private static final int MOST_TAGS = 64;

    /** The beginning of all keys, so that applications in one Tomcat do not share fragments. */
    private final String application;

    private Fragments(String application) {
        this.application = application;
    }

    /** The fragments of a web application. Other processes of the pool that run it have the same. */
    public static Fragments of(ServletContext context) {
        return new Fragments(context.getVirtualServerName() + context.getContextPath() + '\0');
    }

    /**
     * Returns a fragment. If it is not kept, {@code maker} makes it, and it is kept for {@code seconds}. If another thread
     * or process makes it at present, the call returns the old fragment, or waits for at most 5 s. If {@code maker} throws,
     * nothing is kept, and the exception reaches the caller.
     *
     * @param key all that the fragment depends on
     * @param seconds the lifetime; with 0 or less the fragment is not kept
     * @param tags names by which {@link #purge} finds it
     * @return an array that belongs to the caller
     */
    public <E extends Exception> byte[] get(String key, int seconds, Maker<byte[], E> maker, String... tags) throws E {
        FragmentCount count = FragmentCount.current();
        return count == null ? made(key, seconds, maker, tags)
                : count.counted(maker, counting -> made(key, seconds, counting, tags));
    }

    private <E extends Exception> byte[] made(String key, int seconds, Maker<byte[], E> maker, String... tags) throws E {
        byte[] names = seconds > 0 ? names(key, tags) : null;
        byte[] made = names == null ? maker.make() : Native.fragment(names, Math.min(seconds, LONGEST), maker);
        return Objects.requireNonNull(made, "the maker of a fragment has returned null");
    }

    /** The same for a text, which is kept in UTF-8. */
    public <E extends Exception> String getText(String key, int seconds, Maker<String, E> maker, String... tags)
            throws E {
        Maker<byte[], E> bytes = () -> maker.make().getBytes(StandardCharsets.UTF_8);
        return new String(get(key, seconds, bytes, tags), StandardCharsets.UTF_8);
    }

    /** Returns the kept fragment, in an array that belongs to the caller; null if there is none. */
    public byte[] fetch(String key) {
        byte[] kept = Native.fetchFragment(bytes(application + key));
        FragmentCount count = FragmentCount.current();
        if (kept != null && count != null) {
            count.kept();
        }
        return kept;
    }

    /** Returns a number that each purge changes, for {@link #store(String, int, byte[], long, String...)}. */
    public long purges() {
        return Native.fragmentPurges();
    }

    /** Keeps a fragment. Returns false if it does not fit. */
    public boolean store(String key, int seconds, byte[] fragment, String... tags) {
        return store(key, seconds, fragment, purges(), tags);
    }

    /**
     * Keeps a fragment unless something was purged since {@code purges} was the result of {@link #purges}. Returns false if
     * it is not kept.
     */
    public boolean store(String key, int seconds, byte[] fragment, long purges, String... tags) {
        byte[] names = seconds > 0 ? names(key, tags) : null;
        return names != null && Native.storeFragment(names, Math.min(seconds, LONGEST), fragment, purges);
    }

    /** Purges one fragment. */
    public void delete(String key) {
        Native.purgeFragments(bytes(application + key));
    }

    /** Purges the fragments of the pool that have one of these tags. */
    public void purge(String... tags) {
        for (String tag : tags) {
            Native.purgeFragments(bytes(tag));
        }
    }

    /** Purges all fragments of the pool. */
    public void purgeAll() {
        Native.purgeFragments(null);
    }

    /** The key and the tags, each after its length; null if there are too many tags. */
    private byte[] names(String key, String... tags) {
        if (tags.length > MOST_TAGS) {
            return null;
        }
        byte[][] names = new byte[1 + tags.length][];
        names[0] = bytes(application + key);
        int length = Integer.BYTES + names[0].length;
        for (int i = 0; i < tags.length; i++) {
            names[1 + i] = bytes(tags[i]);
            length += Integer.BYTES + names[1 + i].length;
        }
        ByteBuffer packed = ByteBuffer.allocate(length);
        for (byte[] name : names) {
            packed.putInt(name.length).put(name);
        }
        return packed.array();
    }

    /**
     * The bytes of a key or a tag: UTF-8, in which a surrogate without its pair has three bytes, too. {@code getBytes()}
     * would write a question mark for it, and different keys would be one.
     */
    private static byte[] bytes(String text) {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        int done = 0;
        int length;
        for (int i = 0; i < text.length(); i += length) {
            int point = text.codePointAt(i);
            length = Character.charCount(point);
            if (length == 1 && Character.isSurrogate((char) point)) {
                bytes.writeBytes(text.substring(done, i).getBytes(StandardCharsets.UTF_8));
                bytes.write(0xE0 | point >> 12);
                bytes.write(0x80 | point >> 6 & 0x3F);
                bytes.write(0x80 | point & 0x3F);
                done = i + 1;
            }
        }
        bytes.writeBytes(text.substring(done).getBytes(StandardCharsets.UTF_8));
        return bytes.toByteArray();
    }
}
