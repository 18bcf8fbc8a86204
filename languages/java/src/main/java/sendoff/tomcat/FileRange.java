package sendoff.tomcat;

import org.apache.coyote.Constants;
import org.apache.coyote.Request;

/** A range of a file that a servlet wants sent as the response body, by the attributes of Tomcat's sendfile support. */
record FileRange(String path, long start, long length) {

    /** The range in the request's attributes; null if there is none. */
    static FileRange of(Request request) {
        Object path = request.getAttribute(Constants.SENDFILE_FILENAME_ATTR);
        if (path == null) {
            return null;
        }
        long start = (Long) request.getAttribute(Constants.SENDFILE_FILE_START_ATTR);
        long end = (Long) request.getAttribute(Constants.SENDFILE_FILE_END_ATTR);
        return new FileRange((String) path, start, Math.max(end - start, 0));
    }
}
