package acker.redis;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.stream.IntStream;

/**
 * Makes the tuple ids of a namespace: random or derived, with the code of the edge that their messages
 * travel on. In a namespace with edges, a message on edge k has bit 55 + k, so that the checksum of a
 * tree that expires tells where a message is missing.
 */
final class IdMaker {
    // From lua/spec.json, by python -m proof.spec
    private static final int EDGE_BIT = 55;
    private static final int MAX_EDGES = 8;

    private static final int MAX_UNLISTED = 1000;
    private static final System.Logger LOG = System.getLogger("acker.redis");

    /** For a namespace whose configuration is not known: its ids have no code, and are right in any namespace. */
    static final IdMaker UNKNOWN = new IdMaker();

    private final List<String> edges;

    /** The secret of the namespace: never show or log it. */
    private final String salt;

    /** The unlisted edges that were logged. */
    private final Set<String> unlisted;

    /** Creates a maker from the configuration; {@code unlisted} belongs to the client. */
    IdMaker(String edges, String salt, Set<String> unlisted) {
        this.edges = edges.isEmpty() ? List.of() : List.of(edges.split(",", -1));
        this.salt = salt;
        this.unlisted = unlisted;
        if (this.edges.size() > MAX_EDGES) throw new IllegalArgumentException("more than 8 edges");
    }

    private IdMaker() {
        edges = List.of();
        salt = "";
        unlisted = null;
    }

    private int bits() {
        return edges.isEmpty() && unlisted != null ? 63 : EDGE_BIT;
    }

    /** Returns the bit of an edge; 0 for no edge, and for an edge that is not listed, which is logged once. */
    long code(String edge) {
        if (edge == null) throw AckerException.refused("an edge is a name, or empty, not null");
        int k = edges.indexOf(edge);
        if (k >= 0) return 1L << EDGE_BIT + k;
        if (!edge.isEmpty() && unlisted != null && unlisted.size() < MAX_UNLISTED && unlisted.add(edge)) {
            LOG.log(System.Logger.Level.WARNING,
                    "the namespace does not list edge " + Ids.clip(edge) + " (it lists "
                            + (edges.isEmpty() ? "none" : String.join(", ", edges)) + "): verdicts cannot name it");
        }
        return 0;
    }

    /** Returns the edges on which an odd number of messages is outstanding, by a checksum. */
    List<String> edgesOf(long checksum) {
        return IntStream.range(0, edges.size()).filter(k -> (checksum >>> EDGE_BIT + k & 1) != 0)
                .mapToObj(edges::get).toList();
    }

    /** Returns random ids without a code, none of them 0. */
    long[] draw(int count) {
        return Ids.draw(count, (1L << bits()) - 1);
    }

    /** Returns an edge id without a code, maybe 0, that depends only on the salt and the parts. */
    long child(List<byte[]> parts) {
        return derive("child", parts) >>> 64 - bits();
    }

    /** Returns the number of a block, which depends only on the salt, its task and its label. */
    long block(String task, String label) {
        return derive("block", List.of(Ids.utf8("task", task), Ids.utf8("label", label))) >>> 14;
    }

    /** Returns the first 8 bytes of the SHA-256 of the salt, the purpose and the parts, each after its length. */
    private long derive(String purpose, List<byte[]> parts) {
        if (salt.isEmpty()) {
            throw new AckerException("SCHEMA", "the namespace has no salt, so no id can be derived");
        }
        List<byte[]> all = new ArrayList<>();
        all.add(salt.getBytes(StandardCharsets.US_ASCII));
        all.add(purpose.getBytes(StandardCharsets.US_ASCII));
        all.addAll(parts);
        MessageDigest digest = Ids.sha256();
        for (byte[] part : all) {
            digest.update((part.length + ":").getBytes(StandardCharsets.US_ASCII));
            digest.update(part);
        }
        return ByteBuffer.wrap(digest.digest()).getLong();
    }
}
