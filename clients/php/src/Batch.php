<?php

declare(strict_types=1);

// Ids, rows, batches, messages and their encoding, without I/O. lua/README.md of the project specifies
// the protocol.

namespace AckerRedis;

if (PHP_INT_SIZE < 8) {
    throw new \RuntimeException('acker-redis needs a PHP with 64-bit integers');
}

/**
 * The error that this package throws. `$error` is a code of the scripts (lua/README.md, Errors), or
 * REFUSED (invalid input, nothing was sent), LANE, UNAVAILABLE, LATE, CLOSED, REDIS.
 */
final class AckerException extends \RuntimeException
{
    /**
     * $mayPass is whether Redis refused the call for a cause that may pass, such as a full memory or a password
     * that is being changed. $error is REDIS then, and nothing was changed: the same batch may be applied again.
     * $isFull is whether the cause is its memory.
     */
    public function __construct(
        public readonly string $error,
        string $words,
        ?\Throwable $cause = null,
        public readonly bool $mayPass = false,
        public readonly bool $isFull = false,
    ) {
        parent::__construct($words, 0, $cause);
    }

    public static function refuse(string $words): never
    {
        throw new self('REFUSED', $words);
    }
}

/** Draws, checks, parses and formats ids, and checks texts. Ids are int, never float or string. */
final class Ids
{
    public const ANCHOR_MAX = (1 << 62) - 1;
    public const TUPLE_MAX = PHP_INT_MAX;
    public const BLOCK_MAX = (1 << 50) - 1;
    // From lua/spec.json, by python -m proof.spec
    public const MAX_SLOTS = 4095;
    public const MAX_TEXT = 255;
    public const MAX_SHARDS = 1024;
    public const MIN_BUCKETS = 2;
    public const MAX_BUCKETS = 16;
    public const MAX_TAKE = 64;
    public const EDGE_BIT = 55;
    private const MAX_MESSAGE = 65536;
    private const MAX_TREES = 1638;

    /**
     * Return $count ids, 1 .. $max, from the system's random source. $max is 2^n-1. For messages of a
     * namespace with edges use IdMaker::draw().
     *
     * @return list<int>
     */
    public static function draw(int $count, int $max = self::TUPLE_MAX): array
    {
        $ids = [];
        while (($missing = $count - count($ids)) > 0) {
            // 'J' returns a negative number if the highest bit is set: the mask clears that bit.
            foreach (unpack('J*', random_bytes(8 * $missing)) as $drawn) {
                if ($drawn & $max) {
                    $ids[] = $drawn & $max;
                }
            }
        }
        return $ids;
    }

    /** Return a random anchor of a loose tree, 1 .. 2^62-1. */
    public static function newAnchor(): int
    {
        return self::draw(1, self::ANCHOR_MAX)[0];
    }

    /** Return the anchor of a tree in a block. */
    public static function blockAnchor(int $block, int $slot): int
    {
        if ($slot < 0 || $slot >= self::MAX_SLOTS) {
            AckerException::refuse('a slot is a number from 0 to ' . (self::MAX_SLOTS - 1) . ", not $slot");
        }
        if ($block < 0 || $block > self::BLOCK_MAX) {
            AckerException::refuse("a block is a number from 0 to 2^50-1, not $block");
        }
        return 1 << 62 | $block << 12 | $slot;
    }

    /** Return the block of an anchor; null for the anchor of a loose tree. */
    public static function blockOf(int $anchor): ?int
    {
        return $anchor > self::ANCHOR_MAX ? $anchor >> 12 & self::BLOCK_MAX : null;
    }

    /** Parse an id from decimal digits. (int) would turn any larger number into 2^63-1. */
    public static function parse(string $digits): int
    {
        if (preg_match('/^0*([0-9]{1,19})$/D', $digits, $match) && (string) (int) $match[1] === $match[1]) {
            return (int) $match[1];
        }
        AckerException::refuse('an id is a decimal number up to 2^63-1, not ' . self::said($digits));
    }

    public static function anchor(mixed $anchor): int
    {
        if (is_int($anchor) && $anchor > 0 && ($anchor <= self::ANCHOR_MAX || ($anchor & 4095) < self::MAX_SLOTS)) {
            return $anchor;
        }
        AckerException::refuse("an anchor is an int from 1 to 2^62-1, or the anchor of a block's tree, not "
            . self::said($anchor));
    }

    public static function tuple(mixed $id): int
    {
        if (is_int($id) && $id > 0) {
            return $id;
        }
        AckerException::refuse('a tuple id is an int from 1 to 2^63-1, not ' . self::said($id));
    }

    public static function delta(mixed $delta): int
    {
        if (is_int($delta) && $delta >= 0) {
            return $delta;
        }
        AckerException::refuse('a delta is an int from 0 to 2^63-1, not ' . self::said($delta));
    }

    public static function name(string $kind, string $name): string
    {
        if (preg_match('/^[A-Za-z0-9_.-]{1,64}$/D', $name)) {
            return $name;
        }
        AckerException::refuse("a $kind is 1 to 64 characters of A-Z a-z 0-9 _ . -, not " . self::said($name));
    }

    /** Check a text, which is a string of UTF-8 bytes, and return it. */
    public static function text(string $kind, mixed $text, int $least): string
    {
        if (!is_string($text) || !preg_match('//u', $text)) {
            AckerException::refuse("a $kind is a string of UTF-8, not " . self::said($text));
        }
        $bytes = strlen($text);
        if ($bytes < $least || $bytes > self::MAX_TEXT) {
            AckerException::refuse("a $kind has $least to " . self::MAX_TEXT . " bytes, this one $bytes");
        }
        if (preg_match('/[\x00-\x1f\x7f]/', $text)) {
            AckerException::refuse("a $kind must not contain control characters");
        }
        return $text;
    }

    /**
     * Return the slots of a bitmap, in order: bit 7 of byte 0 is slot 0. null if no block of $count slots has it.
     *
     * @return ?list<int>
     */
    public static function slotsOf(string $bitmap, int $count): ?array
    {
        $slots = [];
        for ($slot = 0; $slot < 8 * strlen($bitmap); $slot++) {
            if (ord($bitmap[$slot >> 3]) & 0x80 >> ($slot & 7)) {
                $slots[] = $slot;
            }
        }
        return strlen($bitmap) === intdiv($count + 7, 8) && end($slots) < $count ? $slots : null;
    }

    /** Return a text that fits the why of a row: at most 255 bytes, without control characters. */
    public static function clip(string|\Throwable $why): string
    {
        $text = is_string($why) ? $why : $why::class . ': ' . $why->getMessage();
        $text = preg_replace('/[\x00-\x1f\x7f]/', ' ', substr($text, 0, self::MAX_TEXT));
        if (preg_match('//u', $text)) {
            return $text;
        }
        // Remove a character that was cut. If that does not help, the text is not UTF-8.
        $whole = preg_replace('/[\xc0-\xff][\x80-\xbf]{0,2}$/D', '', $text);
        return preg_match('//u', $whole) ? $whole : preg_replace('/[^\x20-\x7e]/', '?', $text);
    }

    /**
     * Return the XOR of distinct tuple ids; equal ids would cancel.
     *
     * @param array<int> $ids
     */
    public static function xor(array $ids): int
    {
        $delta = 0;
        $seen = [];
        foreach ($ids as $id) {
            if (isset($seen[self::tuple($id)])) {
                AckerException::refuse('two messages have the same tuple id; draw an id for each');
            }
            $seen[$id] = true;
            $delta ^= $id;
        }
        return $delta;
    }

    /**
     * Return the delta of a processed message: its id XOR the ids of all messages that it caused.
     *
     * @param array<int> $emitted
     */
    public static function whole(mixed $tuple, array $emitted): int
    {
        if (in_array(self::tuple($tuple), $emitted, true)) {
            AckerException::refuse('a message and one that it caused have the same id; draw another');
        }
        return $tuple ^ self::xor($emitted);
    }

    /**
     * Parse a message id, <anchor>:<tuple> joined by commas; return its tuple ids by anchor.
     *
     * @return array<int, int>
     */
    public static function parseMessage(string $text): array
    {
        if (strlen($text) > self::MAX_MESSAGE) {
            AckerException::refuse('the text of a message id has at most ' . self::MAX_MESSAGE . ' characters');
        }
        $ids = [];
        foreach (trim($text, " \t") === '' ? [] : explode(',', $text) as $pair) {
            if (!preg_match('/^[ \t]*([0-9]{1,19}):([0-9]{1,19})[ \t]*$/D', $pair, $match)) {
                // Errors reach logs, and an id is enough to ack its message.
                $shape = preg_replace('/[0-9]/', '#', substr($pair, 0, 50));
                AckerException::refuse('an anchored tuple is <anchor>:<tuple>, not ' . self::said($shape));
            }
            $anchor = self::anchor(self::parse($match[1]));
            if (isset($ids[$anchor])) {
                AckerException::refuse("anchor $anchor occurs twice in one message id");
            }
            $ids[$anchor] = self::tuple(self::parse($match[2]));
        }
        return self::trees($ids);
    }

    /**
     * Return the text of a message id, ordered by anchor.
     *
     * @param array<int, int> $ids
     */
    public static function formatMessage(array $ids): string
    {
        ksort($ids);
        return implode(',', array_map(fn (int $anchor, int $id) => "$anchor:$id", array_keys($ids), $ids));
    }

    /**
     * @param array<int, int> $ids
     * @return array<int, int>
     */
    public static function trees(array $ids): array
    {
        if (count($ids) > self::MAX_TREES) {
            AckerException::refuse('a message belongs to at most ' . self::MAX_TREES
                . ' trees; emit several, each anchored to some of the inputs');
        }
        return $ids;
    }

    private static function said(mixed $value): string
    {
        return is_scalar($value) ? var_export($value, true) : get_debug_type($value);
    }
}

/** One call of a script: applied completely or not at all, under its own number. */
final class Part
{
    private ?string $digest = null;

    /**
     * @param list<string> $argv
     * @param list<int> $anchors of loose rows, in the order of the call
     */
    public function __construct(
        public readonly string $script,
        public readonly int $shard,
        public readonly array $argv,
        public readonly array $anchors = [],
    ) {
    }

    /** Return 16 hex digits that identify the content of this call. */
    public function digest(): string
    {
        $text = fn (): string => implode(array_map(fn (string $arg) => strlen($arg) . " $arg", $this->argv));
        return $this->digest ??= substr(hash('sha256', $text()), 0, 16);
    }
}

/** The fixed bytes and numbers of a batch that was sent; each retry sends exactly these. */
final class Sent
{
    public float $fenceMs = INF;
    /** @var array<int, int> when a part was first sent, by hrtime */
    public array $times = [];
    /** @var array<int, Applied> */
    public array $replies = [];
    /** @var array<int, true> parts that may have been applied */
    public array $doubt = [];

    /** @param list<Part> $parts */
    public function __construct(
        public readonly string $lane,
        public readonly int $seq,
        public readonly int $shards,
        public readonly array $parts,
        private readonly ?string $digest = null,
    ) {
    }

    /** Return whether it is certain that no part was applied. */
    public function refused(): bool
    {
        return !$this->doubt && !$this->replies;
    }

    public function fence(int $number): string
    {
        $digest = $this->digest ?? $this->parts[$number]->digest();
        $seq = (string) ($this->seq + $number);
        return $this->lane === '' ? '' : ($digest === '' ? $seq : "$seq:$digest");
    }
}

/** The result of a batch, summed over all its calls. */
final class Applied
{
    public int $tracked = 0;
    public int $acked = 0;
    public int $failed = 0;
    /** @var list<int> anchors of trees that were nacked immediately, because too much is pending: emit none of their messages */
    public array $rejected = [];
    /** Whether a call had been applied before; its counts are missing then. */
    public bool $repeated = false;

    public function add(self $other): void
    {
        $this->tracked += $other->tracked;
        $this->acked += $other->acked;
        $this->failed += $other->failed;
        $this->rejected = [...$this->rejected, ...$other->rejected];
        $this->repeated = $this->repeated || $other->repeated;
    }
}

/** The folded row of an anchor. */
final class Row
{
    public int $delta = 0;
    public int $flags = 0;
    public string $source = '';
    public string $why = '';

    public function __construct(public readonly int $anchor)
    {
    }
}

/**
 * Rows folded per anchor; at most 1024 anchors and 64 KiB of texts. Each method throws (REFUSED) for invalid
 * input, and leaves the batch unchanged.
 */
final class Batch
{
    // From lua/spec.json, by python -m proof.spec
    public const TRACK = 1;
    public const FAIL = 2;
    public const TOUCH = 4;
    private const MAX_ROWS = 1024;
    private const MAX_BLOCKS = 64;
    private const MAX_TEXTS = 64 * 1024;

    /** The sent calls and their replies; while it is set, the batch accepts no rows. */
    public ?Sent $sent = null;
    /** @var array<int, Row> */
    private array $rows = [];
    private int $texts = 0;

    /** @param ?string $task the source that tracks */
    public function __construct(private readonly ?string $task = null)
    {
        if ($task !== null) {
            Ids::name('task', $task);
        }
    }

    public function size(): int
    {
        return count($this->rows);
    }

    public function isEmpty(): bool
    {
        return !$this->rows;
    }

    /** Return whether each row begins a tree. */
    public function onlyTracks(): bool
    {
        foreach ($this->rows as $row) {
            if (!($row->flags & self::TRACK)) {
                return false;
            }
        }
        return true;
    }

    /** Return whether another row might not fit. */
    public function isFull(): bool
    {
        return count($this->rows) >= self::MAX_ROWS || $this->texts > self::MAX_TEXTS - Ids::MAX_TEXT;
    }

    /** @return list<int> */
    public function anchors(): array
    {
        return array_keys($this->rows);
    }

    /**
     * Begin a tree, with the source's id for it and the ids of all its first messages.
     *
     * @param int $anchor
     * @param array<int> $emitted
     */
    public function track(mixed $anchor, string $sourceId, array $emitted): self
    {
        $this->needsTask();
        $text = Ids::text('source id', $sourceId, 1);
        if (Ids::anchor($anchor) > Ids::ANCHOR_MAX) {
            AckerException::refuse("anchor $anchor is in a block; this client tracks no blocks");
        }
        if (isset($this->rows[$anchor]) && $this->rows[$anchor]->flags & self::TRACK) {
            AckerException::refuse("anchor $anchor is tracked twice; draw a new anchor for each attempt");
        }
        $this->fold($anchor, Ids::xor($emitted), self::TRACK, $text)->source = $text;
        return $this;
    }

    /**
     * Ack a processed message; $emitted are the ids of all messages that it caused.
     *
     * @param int $anchor
     * @param int $tuple
     * @param array<int> $emitted
     */
    public function ack(mixed $anchor, mixed $tuple, array $emitted = []): self
    {
        $this->fold(Ids::anchor($anchor), Ids::whole($tuple, $emitted), 0, '');
        return $this;
    }

    /**
     * Fail a tree. With $tuple and $emitted the message counts as processed.
     *
     * @param int $anchor
     * @param ?int $tuple
     * @param array<int> $emitted
     */
    public function fail(mixed $anchor, string $why = '', mixed $tuple = null, array $emitted = []): self
    {
        $delta = $tuple === null ? Ids::xor($emitted) : Ids::whole($tuple, $emitted);
        return $this->add($anchor, $delta, self::FAIL, $why);
    }

    /**
     * Reset the timeout of a tree; for a tree in a block, that of the whole block.
     *
     * @param int $anchor
     */
    public function touch(mixed $anchor): self
    {
        return $this->add($anchor, 0, self::TOUCH);
    }

    /**
     * Fold in a whole row: the delta of a message, and FAIL or TOUCH.
     *
     * @param int $anchor
     * @param int $delta
     */
    public function add(mixed $anchor, mixed $delta, int $flags = 0, string $why = ''): self
    {
        Ids::anchor($anchor);
        Ids::delta($delta);
        $text = $flags & self::FAIL ? Ids::text('why', $why, 0) : '';
        if (isset($this->rows[$anchor]) && $this->rows[$anchor]->why !== '') {
            $text = ''; // the first non-empty why wins
        }
        $row = $this->fold($anchor, $delta, $flags, $text);
        if ($text !== '') {
            $row->why = $text;
        }
        return $this;
    }

    /**
     * Return the calls to send: the loose rows of each shard, then those of trees in blocks.
     *
     * @return list<Part>
     */
    public function parts(int $shards): array
    {
        $loose = $blocks = $parts = [];
        foreach ($this->rows as $anchor => $row) {
            $block = Ids::blockOf($anchor);
            if ($block === null) {
                $loose[$anchor % $shards][] = $row;
            } else {
                $blocks[$block % $shards][$block][] = $row;
            }
        }
        foreach ($loose as $shard => $rows) {
            $parts[] = $this->packLoose($shard, $rows);
        }
        foreach ($blocks as $shard => $its) {
            // The limits of a batch imply the other limits of a call.
            foreach (array_chunk($its, self::MAX_BLOCKS, true) as $some) {
                $argv = array_map(self::packBlock(...), array_keys($some), $some);
                $parts[] = new Part('apply_blocks', $shard, array_merge(...$argv));
            }
        }
        return $parts;
    }

    private function needsTask(): void
    {
        if ($this->task === null) {
            AckerException::refuse("a TRACK row needs a source: use new Batch('task')");
        }
    }

    private function room(int $rows, int $texts): void
    {
        if ($this->sent) {
            AckerException::refuse('this batch was already sent; add new rows to a new batch');
        }
        if (count($this->rows) + $rows > self::MAX_ROWS || $this->texts + $texts > self::MAX_TEXTS) {
            AckerException::refuse('a batch has at most ' . self::MAX_ROWS . ' rows and ' . self::MAX_TEXTS
                . ' bytes of texts; apply this one and begin another');
        }
    }

    private function fold(int $anchor, int $delta, int $flags, string $text): Row
    {
        $row = $this->rows[$anchor] ?? null;
        $this->room($row ? 0 : 1, strlen($text));
        $row ??= $this->rows[$anchor] = new Row($anchor);
        $this->texts += strlen($text);
        // Flags first: an interruption here must not leave the delta of a failed message without FAIL.
        $row->flags |= $flags;
        $row->delta ^= $delta;
        return $row;
    }

    /** @param list<Row> $rows */
    private function packLoose(int $shard, array $rows): Part
    {
        $flags = '';
        $sources = $whys = $anchors = $deltas = [];
        foreach ($rows as $row) {
            $flags .= chr($row->flags);
            $anchors[] = $row->anchor;
            $deltas[] = $row->delta;
            if ($row->flags & self::TRACK) {
                $sources[] = $row->source;
            }
            if ($row->flags & self::FAIL) {
                $whys[] = $row->why;
            }
        }
        $columns = [$flags, pack('J*', ...$anchors), pack('J*', ...$deltas), $sources ? $this->task : ''];
        return new Part('apply', $shard, [...$columns, ...$sources, ...$whys], $anchors);
    }

    /**
     * Return the seven arguments of a block that another client has tracked.
     *
     * @param list<Row> $rows
     * @return list<string>
     */
    private static function packBlock(int $number, array $rows): array
    {
        usort($rows, fn (Row $a, Row $b) => $a->anchor <=> $b->anchor);
        $flags = 0;
        $slots = $deltas = $failed = '';
        foreach ($rows as $row) {
            $slot = $row->anchor & 4095;
            $flags |= $row->flags & self::TOUCH;
            if ($row->delta) {
                $slots .= pack('n', $slot);
                $deltas .= pack('J', $row->delta);
            }
            if ($row->flags & self::FAIL) {
                $failed .= pack('nC', $slot, strlen($row->why)) . $row->why;
            }
        }
        return [chr($flags), pack('J', $number), '', '', $slots, $deltas, $failed];
    }
}

/** Messages that are processed together, usually one, and their effects. Client::process() creates it. */
final class Message
{
    /** @var list<array<int, int>> */
    private array $inputs;
    /** @var list<array<int, int>> for each input, by anchor: the XOR of the edge ids of the messages that it caused */
    private array $caused;
    /** @var array<string, true> */
    private array $keys = [];
    private string $state = 'open';
    private readonly int $pid;

    public function __construct(private readonly Client $client, string ...$texts)
    {
        $this->inputs = array_map(Ids::parseMessage(...), array_values($texts));
        $seen = [];
        foreach ($this->inputs as $ids) {
            foreach ($ids as $anchor => $id) {
                if (isset($seen["$anchor:$id"])) {
                    AckerException::refuse("a message of tree $anchor is given twice; its rows would cancel");
                }
                $seen["$anchor:$id"] = true;
            }
        }
        $this->caused = array_map(fn (array $ids) => array_fill_keys(array_keys($ids), 0), $this->inputs);
        $this->pid = getmypid();
    }

    /**
     * Return the id, a text, for one message that all inputs caused, or only the inputs at these places;
     * '' for an unanchored message. $edge names the edge that the message travels on. $key derives the id
     * from the key and these inputs: when they are processed again, the message has the same id. Each
     * message that the inputs cause needs a different key.
     *
     * @param ?list<int> $places
     */
    public function emit(?array $places = null, ?string $key = null, string $edge = ''): string
    {
        $this->checkOpen();
        $inputs = $this->anchored($places ?? array_keys($this->inputs));
        $ids = $this->client->maker($key !== null && $inputs);
        $code = $ids->code($edge);
        [$edges, $child] = $ids->child($inputs, $key);
        $this->checkOpen(); // a handler of signals or warnings may have closed it
        if ($key !== null && isset($this->keys[$key])) {
            AckerException::refuse('key ' . var_export($key, true) . ' was already used for another message; give each child its own');
        }
        if ($key !== null) {
            $this->keys[$key] = true;
        }
        // Add the edges to the rows before the caller gets the id.
        $this->give($inputs, $edges, $code);
        return Ids::formatMessage(array_map(fn (int $id) => $id | $code, $child));
    }

    /** Ack the inputs. Emit before the ack. */
    public function ack(): void
    {
        $this->checkOpen();
        $rows = $this->rows(true, 0);
        $this->state = 'acked';
        $this->client->add(...$rows);
    }

    /** Fail the trees of the inputs. After an ack the row has only FAIL, not the deltas again. */
    public function fail(string|\Throwable $why = ''): void
    {
        if ($this->state !== 'acked') {
            $this->checkOpen();
        }
        $this->checkProcess();
        $rows = $this->rows($this->state === 'open', Batch::FAIL, Ids::clip($why));
        $this->state = 'failed';
        $this->client->add(...$rows);
    }

    /** Reset the timeout of the trees of the inputs. */
    public function touch(): void
    {
        $this->checkOpen();
        $this->client->add(...$this->rows(false, Batch::TOUCH));
    }

    public function isOpen(): bool
    {
        return $this->state === 'open';
    }

    /**
     * Return the inputs at these places, without those that are unanchored.
     *
     * @param array<int> $places
     * @return array<int, array<int, int>>
     */
    private function anchored(array $places): array
    {
        foreach ($places as $place) {
            if (!is_int($place) || !isset($this->inputs[$place])) {
                AckerException::refuse('there is no input ' . var_export($place, true) . '; inputs are numbered from 0');
            }
        }
        if (count(array_unique($places)) !== count($places)) {
            AckerException::refuse('an input is given twice');
        }
        return array_filter(array_intersect_key($this->inputs, array_flip($places)));
    }

    /**
     * Add an edge id to each input. In each tree, that of the input with the least id has the code.
     *
     * @param array<int, array<int, int>> $inputs
     * @param array<int, int> $edges
     */
    private function give(array $inputs, array $edges, int $code): void
    {
        $carrier = []; // of each tree, the place of that input
        foreach ($inputs as $place => $input) {
            foreach ($input as $anchor => $id) {
                if (!isset($carrier[$anchor]) || $id < $inputs[$carrier[$anchor]][$anchor]) {
                    $carrier[$anchor] = $place;
                }
            }
        }
        foreach ($inputs as $place => $input) {
            foreach ($input as $anchor => $_) {
                $this->caused[$place][$anchor] ^= $edges[$place] | ($carrier[$anchor] === $place ? $code : 0);
            }
        }
    }

    private function checkOpen(): void
    {
        if ($this->state !== 'open') {
            throw new AckerException('CLOSED', "this message was $this->state before");
        }
        $this->checkProcess();
    }

    /** A message emitted in a child would be missing in the parent's row: the tree could be acked falsely. */
    private function checkProcess(): void
    {
        if ($this->pid !== getmypid()) {
            throw new AckerException('CLOSED', 'this message was begun before the fork: only the parent process may emit, '
                . "ack or touch it; fork first, or pass the message's id to the child");
        }
    }

    /** @return list<array{int, int, int, string}> */
    private function rows(bool $whole, int $flags, string $why = ''): array
    {
        $deltas = [];
        foreach ($this->inputs as $place => $ids) {
            foreach ($ids as $anchor => $id) {
                $deltas[$anchor] = ($deltas[$anchor] ?? 0) ^ ($whole ? $id ^ $this->caused[$place][$anchor] : 0);
            }
        }
        return array_map(fn (int $anchor, int $delta) => [$anchor, $delta, $flags, $why], array_keys($deltas), $deltas);
    }

    /** Not allowed: a copy would send the same edges in a second row. */
    private function __clone()
    {
    }
}
