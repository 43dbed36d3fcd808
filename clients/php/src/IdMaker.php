<?php

declare(strict_types=1);

// Ids of messages, without I/O. lua/README.md of the project specifies them (Ids).

namespace AckerRedis;

/**
 * Makes the ids of a namespace, random or derived; Client::ids() returns it. An edge is a way on which
 * messages go from one step to the next. The id of a message on edge k of the namespace has bit 55 + k, its
 * code.
 */
final class IdMaker
{
    private const MAX_UNLISTED = 1000;
    /** @var \Closure(): string the salt is secret: a dump or an export does not show the result of a closure */
    private readonly \Closure $salt;
    /** Mask of the random or derived bits. */
    private readonly int $low;

    /**
     * Without a salt the configuration of the namespace is not known: ids have no code, which is right in any
     * namespace.
     *
     * @param list<string> $edges names, in the order of the configuration
     * @param \ArrayObject<string, true> $unlisted the edges that were logged
     */
    public function __construct(
        public readonly array $edges,
        #[\SensitiveParameter] string $salt,
        private readonly \ArrayObject $unlisted,
    ) {
        $this->salt = static fn (): string => $salt;
        $this->low = $edges || $salt === '' ? (1 << Ids::EDGE_BIT) - 1 : Ids::TUPLE_MAX;
    }

    /** Return the bit of an edge; 0 for '' and for an unlisted edge, which is logged once. */
    public function code(string $edge): int
    {
        if ($edge === '' || ($this->salt)() === '') {
            return 0;
        }
        $number = array_search($edge, $this->edges, true);
        if ($number !== false) {
            return 1 << Ids::EDGE_BIT + $number;
        }
        if (!isset($this->unlisted[$edge]) && count($this->unlisted) < self::MAX_UNLISTED) {
            $this->unlisted[$edge] = true;
            $listed = implode(', ', $this->edges) ?: 'none';
            trigger_error('acker-redis: the namespace does not list edge ' . var_export($edge, true)
                . " (it lists $listed): verdicts cannot name it", E_USER_WARNING);
        }
        return 0;
    }

    /**
     * Return the edges with an odd number of messages outstanding, by the residual of a tree.
     *
     * @return list<string>
     */
    public function edgesOf(int $residual): array
    {
        $odd = fn (int $k): bool => (bool) ($residual >> Ids::EDGE_BIT + $k & 1);
        return array_values(array_filter($this->edges, $odd, ARRAY_FILTER_USE_KEY));
    }

    /**
     * Return $count distinct random ids, for messages on an edge. Their XOR is zero only if there are none.
     *
     * @return list<int>
     */
    public function draw(int $count, string $edge = ''): array
    {
        $code = $this->code($edge);
        do {
            $ids = Ids::draw($count, $this->low);
            $delta = array_reduce($ids, fn (int $sum, int $id) => $sum ^ $id, 0);
        } while ($count > 0 && ($delta === 0 || count(array_flip($ids)) < $count));
        return array_map(fn (int $id) => $id | $code, $ids);
    }

    /**
     * Return an edge id for each input, and the ids of the message that these inputs caused, by anchor; all
     * without a code. With a key they depend only on the salt, the key and the inputs.
     *
     * @param array<int, array<int, int>> $inputs by their places
     * @return array{array<int, int>, array<int, int>}
     */
    public function child(array $inputs, ?string $key = null): array
    {
        for ($attempt = 0;; $attempt++) {
            $edges = $key === null
                ? array_combine(array_keys($inputs), Ids::draw(count($inputs), $this->low))
                : $this->derived($inputs, $key, $attempt);
            $ids = [];
            foreach ($inputs as $place => $input) {
                foreach ($input as $anchor => $_) {
                    $ids[$anchor] = ($ids[$anchor] ?? 0) ^ $edges[$place];
                }
            }
            // Edges cancel with a probability of 2^-55 or less.
            if (!in_array(0, $ids, true)) {
                return [$edges, Ids::trees($ids)];
            }
        }
    }

    /** @return array<string, mixed> */
    public function __debugInfo(): array
    {
        return ['edges' => $this->edges];
    }

    /**
     * @param array<int, array<int, int>> $inputs
     * @return array<int, int>
     */
    private function derived(array $inputs, string $key, int $attempt): array
    {
        $texts = array_map(Ids::formatMessage(...), $inputs);
        $sorted = array_values($texts);
        sort($sorted, SORT_STRING);
        $shift = $this->edges ? 9 : 1;
        $edges = [];
        foreach ($texts as $place => $own) {
            $hash = $this->hash('child', $key, (string) $attempt, ...[...$sorted, $own]);
            $edges[$place] = $hash >> $shift & $this->low; // >> keeps the sign
        }
        return $edges;
    }

    /** Return the first 64 bits of the SHA-256 of the salt and these parts. */
    private function hash(string ...$parts): int
    {
        $text = '';
        foreach ([($this->salt)(), ...$parts] as $part) {
            $text .= strlen($part) . ":$part";
        }
        return unpack('J', hash('sha256', $text, true))[1];
    }
}
