package acker.redis;

/**
 * How the id of a new message is made; by default random, on no edge: {@code new Child().withEdge(..)}.
 *
 * @param edge the name of the edge (queue, topic, table) that the message travels on, or empty. If its tree
 *     expires because the message is missing, the verdict names the edge
 * @param key derives the id from the key and the inputs, so that the same inputs, processed again, give the
 *     message the same id; null for a random id
 */
public record Child(String edge, String key) {
    /** Creates the defaults: no edge, and a random id. */
    public Child() {
        this("", null);
    }

    /** Checks the key. */
    public Child {
        if (key != null) Ids.utf8("key", key);
    }

    /** Sets the edge. */
    public Child withEdge(String edge) {
        return new Child(edge, key);
    }

    /** Sets the key, for example the ordinal or the destination of the message. */
    public Child withKey(String key) {
        return new Child(edge, key);
    }
}
