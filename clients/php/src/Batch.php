<?php

declare(strict_types=1);

// Ids, rows, batches, messages, and the bytes that go over the wire. No I/O. The contract:
// lua/README.md of the project.

namespace AckerRedis;

if (PHP_INT_SIZE < 8) {
    throw new \RuntimeException('acker-redis needs a PHP with 64-bit integers');
}

/**
 * Every error of this package. `$error` is a code of the scripts (lua/README.md, Errors), or REFUSED
 * (it cannot be, and nothing was sent), LANE, UNAVAILABLE, LATE, REJECTED, CLOSED, REDIS.
 */
final class AckerException extends \RuntimeException
{
    public function __construct(public readonly string $error, string $words, ?\Throwable $cause = null)
    {
        parent::__construct($words, 0, $cause);
    }

    public static function refuse(string $words): never
    {
        throw new self('REFUSED', $words);
    }
}

/** Numbers and texts: drawn, checked, read and written. Ids are int, never float or string. */
final class Ids
{
    public const ANCHOR_MAX = (1 << 62) - 1;
    public const TUPLE_MAX = PHP_INT_MAX;
    public const BLOCK_MAX = (1 << 50) - 1;
    public const MAX_SLOTS = 4095;
    public const MAX_TEXT = 255;
    private const MAX_MESSAGE = 64 * 1024;
    private const MAX_TREES = 1638;

    /**
     * So many ids, 1 .. $max (of all bits set), each from the system's random source.
     *
     * @return list<int>
     */
    public static function draw(int $count, int $max = self::TUPLE_MAX): array
    {
        $ids = [];
        while (($missing = $count - count($ids)) > 0) {
            // 'J' gives what has the highest bit as a negative number: the mask takes it away.
            foreach (unpack('J*', random_bytes(8 * $missing)) as $drawn) {
                if ($drawn & $max) {
                    $ids[] = $drawn & $max;
                }
            }
        }
        return $ids;
    }

    /** An anchor of a loose tree, 1 .. 2^62-1. */
    public static function newAnchor(): int
    {
        return self::draw(1, self::ANCHOR_MAX)[0];
    }

    /** Number of a block from its source's own identity: the same parts, the same number. */
    public static function blockNumber(string|int ...$identity): int
    {
        $text = '';
        foreach ($identity as $part) {
            $text .= strlen((string) $part) . ':' . $part;
        }
        // >> keeps the sign.
        return unpack('J', hash('sha256', $text, true))[1] >> 14 & self::BLOCK_MAX;
    }

    /** Anchor of a tree in a block. */
    public static function blockAnchor(int $block, int $slot): int
    {
        if ($slot < 0 || $slot >= self::MAX_SLOTS) {
            AckerException::refuse("a slot is a number from 0 to 4094, not $slot");
        }
        return 1 << 62 | self::block($block) << 12 | $slot;
    }

    /** Block of an anchor; null for a loose one. */
    public static function blockOf(int $anchor): ?int
    {
        return $anchor > self::ANCHOR_MAX ? $anchor >> 12 & self::BLOCK_MAX : null;
    }

    /** Shard of an anchor; of a block, for all of its anchors. */
    public static function shardOf(int $anchor, int $shards): int
    {
        return (self::blockOf($anchor) ?? $anchor) % $shards;
    }

    /** An id from decimal digits. (int) would make 2^63-1 of whatever is larger. */
    public static function parse(string $digits): int
    {
        if (preg_match('/^0*([0-9]{1,19})$/D', $digits, $match) && (string) (int) $match[1] === $match[1]) {
            return (int) $match[1];
        }
        AckerException::refuse('an id is decimal digits of a number up to 2^63-1, not ' . self::said($digits));
    }

    public static function anchor(mixed $anchor): int
    {
        if (is_int($anchor) && $anchor > 0 && ($anchor <= self::ANCHOR_MAX || ($anchor & 4095) < self::MAX_SLOTS)) {
            return $anchor;
        }
        AckerException::refuse("an anchor is an int from 1 to 2^62-1, or one of a block's 4095 slots, not " . self::said($anchor));
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

    public static function block(mixed $block): int
    {
        if (is_int($block) && $block >= 0 && $block <= self::BLOCK_MAX) {
            return $block;
        }
        AckerException::refuse('a block is an int from 0 to 2^50-1, not ' . self::said($block));
    }

    public static function name(string $kind, string $name): string
    {
        if (preg_match('/^[A-Za-z0-9_.-]{1,64}$/D', $name)) {
            return $name;
        }
        AckerException::refuse("a $kind is 1 to 64 of A-Z a-z 0-9 _ . -, not " . self::said($name));
    }

    /** A text, which is bytes of UTF-8, as the scripts take it. */
    public static function text(string $kind, mixed $text, int $least): string
    {
        if (!is_string($text) || !preg_match('//u', $text)) {
            AckerException::refuse("a $kind is a string of UTF-8, not " . self::said($text));
        }
        $bytes = strlen($text);
        if ($bytes < $least || $bytes > self::MAX_TEXT) {
            AckerException::refuse("a $kind has $least to 255 bytes, this one $bytes");
        }
        if (preg_match('/[\x00-\x1f\x7f]/', $text)) {
            AckerException::refuse("a $kind has no control characters");
        }
        return $text;
    }

    /** Words for people, as a row can hold them: 255 bytes, no control characters. */
    public static function clip(string|\Throwable $why): string
    {
        $text = is_string($why) ? $why : $why::class . ': ' . $why->getMessage();
        $text = preg_replace('/[\x00-\x1f\x7f]/', ' ', substr($text, 0, self::MAX_TEXT));
        if (preg_match('//u', $text)) {
            return $text;
        }
        // A letter that was cut; else it is not UTF-8 at all.
        $whole = preg_replace('/[\xc0-\xff][\x80-\xbf]{0,2}$/D', '', $text);
        return preg_match('//u', $whole) ? $whole : preg_replace('/[^\x20-\x7e]/', '?', $text);
    }

    /**
     * XOR of distinct tuple ids; two messages with one id would cancel.
     *
     * @param array<int> $ids
     */
    public static function xor(array $ids): int
    {
        $delta = 0;
        $seen = [];
        foreach ($ids as $id) {
            if (isset($seen[self::tuple($id)])) {
                AckerException::refuse('two messages have one tuple id; draw an id for each');
            }
            $seen[$id] = true;
            $delta ^= $id;
        }
        return $delta;
    }

    /**
     * Delta of a message that was processed: its id XOR the ids of all it caused.
     *
     * @param array<int> $emitted
     */
    public static function whole(mixed $tuple, array $emitted): int
    {
        if (in_array(self::tuple($tuple), $emitted, true)) {
            AckerException::refuse('a message cannot have the id of one it caused; draw another');
        }
        return $tuple ^ self::xor($emitted);
    }

    /**
     * Ids of a message by anchor, from its text: <anchor>:<tuple>, joined by commas.
     *
     * @return array<int, int>
     */
    public static function parseMessage(string $text): array
    {
        if (strlen($text) > self::MAX_MESSAGE) {
            AckerException::refuse('the ids of a message have at most 65536 characters');
        }
        $ids = [];
        foreach (trim($text, " \t") === '' ? [] : explode(',', $text) as $pair) {
            if (!preg_match('/^[ \t]*([0-9]{1,19}):([0-9]{1,19})[ \t]*$/D', $pair, $match)) {
                AckerException::refuse('an anchored tuple is <anchor>:<tuple>, not ' . self::said(substr($pair, 0, 50)));
            }
            $anchor = self::anchor(self::parse($match[1]));
            if (isset($ids[$anchor])) {
                AckerException::refuse("anchor $anchor is there twice in one message");
            }
            $ids[$anchor] = self::tuple(self::parse($match[2]));
        }
        return self::trees($ids);
    }

    /**
     * Text of a message's ids, ordered by anchor.
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
            AckerException::refuse('a message belongs to at most 1638 trees; emit several');
        }
        return $ids;
    }

    private static function said(mixed $value): string
    {
        return is_scalar($value) ? var_export($value, true) : get_debug_type($value);
    }
}

/** One call of a script: all or nothing, under a number of its own. */
final class Part
{
    private ?string $digest = null;

    /**
     * @param list<string> $argv
     * @param list<int> $names anchors of rows, or numbers of blocks, in the order of the call
     */
    public function __construct(
        public readonly string $script,
        public readonly int $shard,
        public readonly array $argv,
        public readonly array $names,
    ) {
    }

    /** 16 hex digits that tell this call from others. */
    public function digest(): string
    {
        $text = fn (): string => implode(array_map(fn (string $arg) => strlen($arg) . " $arg", $this->argv));
        return $this->digest ??= substr(hash('sha256', $text()), 0, 16);
    }
}

/** What a batch is once it is sent: the same bytes under the same numbers, whatever happens. */
final class Sent
{
    public float $fenceMs = INF;
    /** @var array<int, int> when a part was sent first, by hrtime */
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

    /** Whether nothing of it was applied, for sure. */
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

/** What became of a batch, over all its calls. */
final class Applied
{
    public int $tracked = 0;
    public int $acked = 0;
    public int $failed = 0;
    /** @var list<int> anchors of trees that were nacked at once, because too much is pending: emit nothing of them */
    public array $rejected = [];
    /** @var list<int> numbers of blocks likewise */
    public array $rejectedBlocks = [];
    /** A call had been applied before; its counts are missing. */
    public bool $repeated = false;

    public function add(self $other): void
    {
        $this->tracked += $other->tracked;
        $this->acked += $other->acked;
        $this->failed += $other->failed;
        $this->rejected = [...$this->rejected, ...$other->rejected];
        $this->rejectedBlocks = [...$this->rejectedBlocks, ...$other->rejectedBlocks];
        $this->repeated = $this->repeated || $other->repeated;
    }
}

/** A row of an anchor, folded. */
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
 * Rows folded per anchor, and blocks; at most 1024 anchors, 64 blocks, 64 KiB of texts. Each method
 * throws (REFUSED) for what cannot be, and the batch is then as it was.
 */
final class Batch
{
    public const TRACK = 1;
    public const FAIL = 2;
    public const TOUCH = 4;
    private const MAX_ROWS = 1024;
    private const MAX_BLOCKS = 64;
    private const MAX_TEXTS = 64 * 1024;
    /** Bytes of one call of apply_blocks. */
    private const MAX_CALL = 1024 * 1024;

    /** Where it was sent, and what was answered; from then on no row comes in. */
    public ?Sent $sent = null;
    /** @var array<int, Row> */
    private array $rows = [];
    /** @var array<int, array{string, list<int>}> label and deltas */
    private array $blocks = [];
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
        return !$this->rows && !$this->blocks;
    }

    /** Whether another row could be one too many. */
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
     * Begin a tree: the source's own id for it, and the ids of all its first messages.
     *
     * @param int $anchor
     * @param array<int> $emitted
     */
    public function track(mixed $anchor, string $sourceId, array $emitted): self
    {
        $this->needsTask();
        $text = Ids::text('source id', $sourceId, 1);
        if (Ids::anchor($anchor) > Ids::ANCHOR_MAX) {
            AckerException::refuse("anchor $anchor is in a block; a block is tracked as a whole: trackBlock()");
        }
        if (isset($this->rows[$anchor]) && $this->rows[$anchor]->flags & self::TRACK) {
            AckerException::refuse("anchor $anchor is tracked twice; draw one per attempt");
        }
        $this->fold($anchor, Ids::xor($emitted), self::TRACK, $text)->source = $text;
        return $this;
    }

    /**
     * Begin a block of trees: for each slot the XOR of the ids of its first messages, 0 where no tree
     * stands. Returns the block's number, derived from task and label unless it is given.
     *
     * @param array<int> $deltas
     * @param ?int $block
     */
    public function trackBlock(string $label, array $deltas, mixed $block = null): int
    {
        $this->needsTask();
        Ids::text('label', $label, 1);
        $number = $block === null ? Ids::blockNumber($this->task, $label) : Ids::block($block);
        $values = array_map(Ids::delta(...), array_values($deltas));
        $count = count($values);
        if ($count < 1 || $count > Ids::MAX_SLOTS) {
            AckerException::refuse("a block has 1 to 4095 trees, not $count");
        }
        if (isset($this->blocks[$number])) {
            AckerException::refuse("block $label is tracked twice; name each attempt");
        }
        foreach ($this->rows as $anchor => $_) {
            if (Ids::blockOf($anchor) === $number && ($anchor & 4095) >= $count) {
                AckerException::refuse('a row of this batch is of slot ' . ($anchor & 4095) . ", which block $label has not");
            }
        }
        $this->room(0, strlen($label), 1);
        $this->texts += strlen($label);
        $this->blocks[$number] = [$label, $values];
        return $number;
    }

    /**
     * A message was processed; $emitted are the ids of all messages that it caused.
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
     * The tree failed. With $tuple, and $emitted, the message counts as processed.
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
     * More time is needed: the clock of the tree, or of its block, starts anew.
     *
     * @param int $anchor
     */
    public function touch(mixed $anchor): self
    {
        return $this->add($anchor, 0, self::TOUCH);
    }

    /**
     * Fold in a row that is whole already: the delta of a message, and FAIL or TOUCH.
     *
     * @param int $anchor
     * @param int $delta
     */
    public function add(mixed $anchor, mixed $delta, int $flags = 0, string $why = ''): self
    {
        self::check($anchor, $delta, $flags, $why);
        $text = $flags & self::FAIL ? $why : '';
        if (isset($this->rows[$anchor]) && $this->rows[$anchor]->why !== '') {
            $text = ''; // the first that says something wins
        }
        $row = $this->fold($anchor, $delta, $flags, $text);
        if ($text !== '') {
            $row->why = $text;
        }
        return $this;
    }

    /** Refuse a whole row that cannot be. */
    public static function check(mixed $anchor, mixed $delta, int $flags = 0, string $why = ''): void
    {
        Ids::anchor($anchor);
        Ids::delta($delta);
        if ($flags & ~(self::FAIL | self::TOUCH)) {
            AckerException::refuse("flags of a whole row are FAIL, TOUCH, both or 0, not $flags");
        }
        Ids::text('why', $flags & self::FAIL ? $why : '', 0);
    }

    /**
     * What is sent: the loose rows of each shard, then its blocks.
     *
     * @return list<Part>
     */
    public function parts(int $shards): array
    {
        $loose = [];
        $blocks = array_map(fn () => [], $this->blocks);
        foreach ($this->rows as $anchor => $row) {
            $block = Ids::blockOf($anchor);
            if ($block === null) {
                $loose[$anchor % $shards][] = $row;
            } else {
                $blocks[$block][] = $row;
            }
        }
        $parts = [];
        foreach ($loose as $shard => $rows) {
            $parts[] = $this->packLoose($shard, $rows);
        }
        $calls = [];
        foreach ($blocks as $number => $rows) {
            $argv = $this->packBlock($number, $rows);
            $bytes = array_sum(array_map(strlen(...), $argv));
            $its = &$calls[$number % $shards];
            $last = $its === null ? null : array_key_last($its);
            // The fewest calls that may carry them. (Of so few rows the other limits keep.)
            if ($last === null || count($its[$last][1]) === self::MAX_BLOCKS || $its[$last][2] + $bytes > self::MAX_CALL) {
                $its[] = [[], [], 0];
                $last = array_key_last($its);
            }
            array_push($its[$last][0], ...$argv);
            $its[$last][1][] = $number;
            $its[$last][2] += $bytes;
            unset($its);
        }
        foreach ($calls as $shard => $its) {
            foreach ($its as [$argv, $numbers]) {
                $parts[] = new Part('apply_blocks', $shard, $argv, $numbers);
            }
        }
        return $parts;
    }

    private function needsTask(): void
    {
        if ($this->task === null) {
            AckerException::refuse("name the source, new Batch('task'), to track in this batch");
        }
    }

    private function room(int $rows, int $texts, int $blocks): void
    {
        if ($this->sent) {
            AckerException::refuse('this batch was sent already; put new rows into a new one');
        }
        if (count($this->rows) + $rows > self::MAX_ROWS || $this->texts + $texts > self::MAX_TEXTS) {
            AckerException::refuse('a batch has at most 1024 rows and 65536 bytes of texts; begin another');
        }
        if (count($this->blocks) + $blocks > self::MAX_BLOCKS) {
            AckerException::refuse('a batch tracks at most 64 blocks; begin another');
        }
    }

    private function fold(int $anchor, int $delta, int $flags, string $text): Row
    {
        $row = $this->rows[$anchor] ?? null;
        $block = Ids::blockOf($anchor);
        if (!$row && $block !== null && isset($this->blocks[$block])) {
            $count = count($this->blocks[$block][1]);
            if (($anchor & 4095) >= $count) {
                AckerException::refuse("block $block has $count trees, and no slot " . ($anchor & 4095));
            }
        }
        $this->room($row ? 0 : 1, strlen($text), 0);
        $row ??= $this->rows[$anchor] = new Row($anchor);
        $this->texts += strlen($text);
        // In this order: whoever is interrupted in between must not leave the delta of a failure alone.
        $row->flags |= $flags;
        $row->delta ^= $delta;
        return $row;
    }

    /** @param list<Row> $rows */
    private function packLoose(int $shard, array $rows): Part
    {
        $flags = '';
        $sources = $whys = $names = $deltas = [];
        foreach ($rows as $row) {
            $flags .= chr($row->flags);
            $names[] = $row->anchor;
            $deltas[] = $row->delta;
            if ($row->flags & self::TRACK) {
                $sources[] = $row->source;
            }
            if ($row->flags & self::FAIL) {
                $whys[] = $row->why;
            }
        }
        $columns = [$flags, pack('J*', ...$names), pack('J*', ...$deltas), $sources ? $this->task : ''];
        return new Part('apply', $shard, [...$columns, ...$sources, ...$whys], $names);
    }

    /**
     * The six arguments of a block.
     *
     * @param list<Row> $rows
     * @return list<string>
     */
    private function packBlock(int $number, array $rows): array
    {
        usort($rows, fn (Row $a, Row $b) => $a->anchor <=> $b->anchor);
        [$label, $column] = $this->blocks[$number] ?? [null, []];
        $flags = $label === null ? 0 : self::TRACK;
        $header = $label === null ? '' : pack('nC', count($column), strlen($this->task)) . $this->task . $label;
        $slots = $failed = '';
        foreach ($rows as $row) {
            $slot = $row->anchor & 4095;
            $flags |= $row->flags & self::TOUCH;
            if ($row->delta && $label !== null) {
                $column[$slot] ^= $row->delta;
            } elseif ($row->delta) {
                $slots .= pack('n', $slot);
                $column[] = $row->delta;
            }
            if ($row->flags & self::FAIL) {
                $failed .= pack('nC', $slot, strlen($row->why)) . $row->why;
            }
        }
        return [chr($flags), pack('J', $number), $header, $slots, $column ? pack('J*', ...$column) : '', $failed];
    }
}

/** Messages that are processed together, mostly one, and what they caused: Client::process() makes it. */
final class Message
{
    /** @var list<array<int, int>> */
    private array $inputs;
    /** @var list<int> */
    private array $edges;
    private string $state = 'open';
    private readonly int $pid;

    public function __construct(private readonly Client $client, string ...$texts)
    {
        $this->inputs = array_map(Ids::parseMessage(...), array_values($texts));
        $seen = [];
        foreach ($this->inputs as $ids) {
            foreach ($ids as $anchor => $id) {
                if (isset($seen["$anchor:$id"])) {
                    AckerException::refuse('one message is there twice; its rows would cancel');
                }
                $seen["$anchor:$id"] = true;
            }
        }
        $this->edges = array_fill(0, count($texts), 0);
        $this->pid = getmypid();
    }

    /**
     * Text to send with one message that these inputs caused: all of them, or those at these places;
     * '' of an unanchored one.
     *
     * @param ?list<int> $places
     */
    public function emit(?array $places = null): string
    {
        $this->checkOpen();
        $places = $places === null ? array_keys($this->inputs) : array_values($places);
        foreach ($places as $place) {
            if (!is_int($place) || !isset($this->inputs[$place])) {
                AckerException::refuse('there is no input ' . var_export($place, true) . '; they count from 0');
            }
        }
        if (count(array_unique($places)) !== count($places)) {
            AckerException::refuse('an input is there twice');
        }
        do {
            $edges = Ids::draw(count($places));
            $ids = [];
            foreach ($places as $n => $place) {
                foreach ($this->inputs[$place] as $anchor => $_) {
                    $ids[$anchor] = ($ids[$anchor] ?? 0) ^ $edges[$n];
                }
            }
        } while (in_array(0, $ids, true)); // edges that cancel: once in 2^63
        Ids::trees($ids);
        // An edge is in its row before anybody holds the id.
        foreach ($places as $n => $place) {
            $this->edges[$place] ^= $edges[$n];
        }
        return Ids::formatMessage($ids);
    }

    /** They were processed. Emit before. */
    public function ack(): void
    {
        $this->checkOpen();
        $rows = $this->rows(true, 0);
        $this->state = 'acked';
        $this->client->add(...$rows);
    }

    /** They failed, and with them their trees. After an ack, failures alone. */
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

    /** More time is needed. */
    public function touch(): void
    {
        $this->checkOpen();
        $this->client->add(...$this->rows(false, Batch::TOUCH));
    }

    public function isOpen(): bool
    {
        return $this->state === 'open';
    }

    private function checkOpen(): void
    {
        if ($this->state !== 'open') {
            throw new AckerException('CLOSED', "this message was $this->state before");
        }
        $this->checkProcess();
    }

    /** A child's emit would be missing in the row of its parent, which could then ack falsely. */
    private function checkProcess(): void
    {
        if ($this->pid !== getmypid()) {
            throw new AckerException('CLOSED', "this message is its parent's; a forked child processes its own");
        }
    }

    /** @return list<array{int, int, int, string}> */
    private function rows(bool $whole, int $flags, string $why = ''): array
    {
        $deltas = [];
        foreach ($this->inputs as $place => $ids) {
            foreach ($ids as $anchor => $id) {
                $deltas[$anchor] = ($deltas[$anchor] ?? 0) ^ ($whole ? $id ^ $this->edges[$place] : 0);
            }
        }
        return array_map(fn (int $anchor, int $delta) => [$anchor, $delta, $flags, $why], array_keys($deltas), $deltas);
    }

    /** Copied, its edges would be in two rows. */
    private function __clone()
    {
    }
}
