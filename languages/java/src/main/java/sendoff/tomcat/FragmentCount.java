package sendoff.tomcat;

import java.nio.charset.StandardCharsets;
import java.util.Locale;

/** Counts the fragments of a response, for {@code sendoff explain}, in the thread that calls the servlet. */
final class FragmentCount {

    /** Something that asks for a fragment. */
    @FunctionalInterface
    interface Asking<E extends Exception> {

        byte[] ask(Fragments.Maker<byte[], E> maker) throws E;
    }

    /** Null: the response is not explained. */
    private static final ThreadLocal<FragmentCount> CURRENT = new ThreadLocal<>();

    private int kept;
    private int made;
    private long nanoseconds;

    /** The count of the response that this thread makes; null if it is not explained. */
    static FragmentCount current() {
        return CURRENT.get();
    }

    /** Begins a response in this thread. */
    static void begin(FragmentCount count) {
        CURRENT.set(count);
    }

    /** Asks for a fragment. It is a kept one unless {@code maker} has been called. */
    <E extends Exception> byte[] counted(Fragments.Maker<byte[], E> maker, Asking<E> asking) throws E {
        int before = made;
        byte[] fragment = asking.ask(() -> {
            long begun = System.nanoTime();
            try {
                return maker.make();
            } finally {
                made++;
                nanoseconds += System.nanoTime() - begun;
            }
        });
        if (made == before) {
            kept++;
        }
        return fragment;
    }

    void kept() {
        kept++;
    }

    /** The note for the front (docs/handover.md, EXPLAIN); null if the response has no fragments. */
    byte[] note() {
        if (kept + made == 0) {
            return null;
        }
        String note = String.format(Locale.ROOT, "note\t\tmade of %d fragments, %d kept, %d made in %.0f ms\t",
                kept + made, kept, made, nanoseconds / 1e6);
        return note.getBytes(StandardCharsets.UTF_8);
    }
}
