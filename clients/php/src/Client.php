<?php

declare(strict_types=1);

// Track tuple trees, ack and fail messages, read the verdicts. lua/README.md of the project describes the
// wire protocol and retries.

namespace AckerRedis;

require_once __DIR__ . '/Batch.php';
require_once __DIR__ . '/IdMaker.php';

/** A tree that was tracked: send one message with each id, unless the tree is rejected. */
final class Tree
{
    /** @param list<string> $ids */
    public function __construct(
        public readonly int $anchor,
        public readonly array $ids,
        public readonly bool $rejected,
    ) {
    }
}

/**
 * Verdict on one tree: ack, nack or touch; reason completed, failed, expired, overflow, conflict or reset.
 * For a tree in a block, the source id is the block's label.
 */
final class Outcome
{
    /**
     * The last four describe a tree that expired. $cause is idle (no row came for long enough) or deadline.
     * $residual is the XOR of the ids of its outstanding messages, 0 if it is unknown. $idleMs is the time
     * since its last row, or, in a block, since the last row of the block. $edges are the names of the edges
     * with an odd number of messages outstanding.
     *
     * @param list<string> $edges
     */
    public function __construct(
        public readonly string $verdict,
        public readonly string $reason,
        public readonly int $anchor,
        public readonly string $sourceId,
        public readonly string $why,
        public readonly int $ageMs,
        public readonly string $cause = '',
        public readonly int $residual = 0,
        public readonly int $idleMs = 0,
        public readonly array $edges = [],
    ) {
    }
}

/** An entry of a task's stream: outcomes of one call. */
final class Entry
{
    /** @param list<Outcome> $outcomes */
    public function __construct(
        public readonly int $shard,
        public readonly string $id,
        public readonly array $outcomes,
    ) {
    }
}

/**
 * The configuration of a namespace.
 *
 * @internal
 */
final class Config
{
    /** @param float $fenceMs how long a fence holds */
    public function __construct(
        public readonly int $shards,
        public readonly float $fenceMs,
        public readonly IdMaker $ids,
    ) {
    }
}

/** A client of one namespace. A forked child starts with a new lane and a new connection. */
final class Client
{
    private const FIRST_PAUSE = 0.05;
    private const LONGEST_PAUSE = 0.5;
    /** Pattern of an error reply of Redis, as opposed to an error text of phpredis. */
    private const REPLY = '/^-?([A-Z][A-Z0-9]+ .*)/s';
    /** Seconds until the next attempt to read edges and salt. */
    private const IDS_RETRY = 2.0;
    // From acker_redis/protocol/codes.py, by python -m proof.spec
    /** Transient states: start-up, failover, a migrating slot, a long script, a full disk. */
    private const PASSING = '/^(ERR max number of clients reached|'
        . 'MOVED|ASK|LOADING|BUSY|TRYAGAIN|CLUSTERDOWN|MASTERDOWN|READONLY|NOREPLICAS|UNBLOCKED|REDIRECT|MISCONF)\b/';
    /** Refusals that may pass: memory is freed, a password or a right changes. */
    private const PATIENT = '/^(OOM|NOAUTH|WRONGPASS|NOPERM)\b/';
    /** Only a new connection can succeed, perhaps to another node. */
    private const DEMOTED = '/^(CLUSTERDOWN\b|(LOADING|MASTERDOWN|READONLY|NOREPLICAS|UNBLOCKED|REDIRECT|NOAUTH|WRONGPASS)\b)/';

    /** The lack of a right to a single command of a script: commands before it may have run. */
    private const NO_RIGHT_IN_SCRIPT = "/The user executing the script can't |ACL failure in script: /";
    /** Prefix of Redis 6.2 before the error of a command inside a script. */
    private const IN_SCRIPT = '/^(?:ERR )?Error running script .*?: -?(?=[A-Z]+ )/s';

    /** @var array<string, array{string, string}> source and SHA1 */
    private static array $scripts = [];
    private \Redis|\RedisCluster|null $redis = null;
    private int $pid = 0;
    /** @var list<Batch> */
    private array $queue = [];
    private float $since = 0.0;
    private ?Config $config = null;
    /** The last maker of ids that was read. */
    private ?IdMaker $lastIds = null;
    /** When to try again to read edges and salt, after a first attempt; else 0. */
    private float $idsDue = 0.0;
    /** @var \ArrayObject<string, true> edges that were logged */
    private \ArrayObject $unlisted;
    private bool $reshard = false;
    private string $lane = '';
    private int $seq = 0;

    /**
     * $connect returns a new Redis or RedisCluster; it is called again after an error, and in a forked
     * child. $retryFor is for how many seconds a batch is retried that got no reply, or that was refused
     * because too many verdicts wait. $linger is for how many seconds rows wait for others; there is no
     * timer, a later call sends them. $onGivenUp is called with the error and the anchors of each batch of
     * rows that was given up; that error is also thrown.
     *
     * @param \Closure(): (\Redis|\RedisCluster) $connect
     * @param ?\Closure(AckerException, list<int>): void $onGivenUp
     */
    public function __construct(
        private readonly \Closure $connect,
        private readonly string $namespace,
        private readonly float $retryFor = 10.0,
        private readonly float $linger = 0.002,
        private readonly ?\Closure $onGivenUp = null,
    ) {
        Ids::name('namespace', $namespace);
        $this->unlisted = new \ArrayObject();
        $this->checkProcess();
    }

    /** Return the IdMaker of the namespace; the first call reads the configuration. */
    public function ids(): IdMaker
    {
        $this->checkProcess();
        return $this->known(self::now() + $this->retryFor)->ids;
    }

    /**
     * Return what makes the ids of a message's children. If the configuration is not known, it is read once, and
     * while Redis does not answer, ids are made that are right in any namespace. Derived ids wait for the salt.
     *
     * @internal
     */
    public function maker(bool $salt): IdMaker
    {
        $this->checkProcess();
        if ($this->config || $salt) {
            return $this->ids();
        }
        $begun = self::now();
        $unknown = new IdMaker([], '', $this->unlisted);
        if (!$this->lastIds && $begun < $this->idsDue) {
            return $unknown;
        }
        try {
            return $this->config()->ids;
        } catch (AckerException $error) {
            if ($this->lastIds) {
                return $this->lastIds;
            }
            if ($error->error !== 'UNAVAILABLE') {
                throw $error;
            }
            if ($this->idsDue === 0.0) {
                trigger_error("acker-redis: {$this->namespace}: messages that are emitted now carry no edge, because edges "
                    . 'and salt could not be read; a verdict cannot tell on which edge one is lost: '
                    . $error->getMessage(), E_USER_WARNING);
            }
            $this->idsDue = self::now() + max(self::IDS_RETRY, 10 * (self::now() - $begun));
            return $unknown;
        }
    }

    // Sources

    /**
     * Begin a tree of $emit first messages, and wait until that is applied. $edge names the edge that they
     * travel on.
     */
    public function track(string $task, string $sourceId, int $emit = 1, string $edge = ''): Tree
    {
        if ($emit < 0) {
            AckerException::refuse("a tree has 0 or more first messages, not $emit");
        }
        $batch = new Batch($task);
        Ids::text('source id', $sourceId, 1);
        $this->checkProcess();
        $deadline = self::now() + $this->retryFor;
        $ids = $this->known($deadline)->ids->draw($emit, $edge);
        $anchor = Ids::newAnchor();
        $applied = $this->deliver($batch->track($anchor, $sourceId, $ids), $deadline);
        return new Tree($anchor, array_map(fn (int $id) => "$anchor:$id", $ids), $applied->rejected !== []);
    }

    // Bolts

    /** Begin to process messages, given by their ids: one, or several together for a join. */
    public function process(string ...$texts): Message
    {
        return new Message($this, ...$texts);
    }

    /**
     * Add the whole rows of a Message, [anchor, delta, flags, why]. They are sent when a batch is full, when they have
     * lingered, and by flush(). The call that sends a batch throws its error.
     *
     * @internal
     * @param array{0: int, 1: int, 2?: int, 3?: string} ...$rows
     */
    public function add(array ...$rows): void
    {
        $this->checkProcess();
        foreach ($rows as $row) {
            $last = end($this->queue);
            if (!$last || $last->sent || $last->isFull()) {
                $this->queue[] = $last = new Batch();
                $this->since = self::now();
            }
            $last->add(...$row);
        }
        $last = end($this->queue);
        if ($last && (count($this->queue) > 1 || $last->isFull() || self::now() - $this->since >= $this->linger)) {
            $this->sendQueue();
        }
    }

    /** Wait until all rows are applied; throws the error of the first batch that was given up. */
    public function flush(): void
    {
        $this->checkProcess();
        $this->sendQueue();
    }

    /**
     * Apply a batch that the caller made, and wait. After UNAVAILABLE or BACKLOG the same batch may be
     * applied again, but only before another one is applied.
     */
    public function apply(Batch $batch): Applied
    {
        $this->checkProcess();
        return $this->deliver($batch, self::now() + $this->retryFor);
    }

    // Outcomes

    /**
     * Yield each waiting Outcome of a task, until none is left. An entry is taken after all its outcomes
     * were handled and the next one is requested; other entries are read again later.
     *
     * @return \Generator<int, Outcome>
     */
    public function outcomes(string $task): \Generator
    {
        while ($entries = $this->read($task)) {
            foreach ($entries as $entry) {
                foreach ($entry->outcomes as $outcome) {
                    yield $outcome;
                }
                $this->take($task, $entry);
            }
        }
    }

    /**
     * Return waiting entries, up to $count a shard, the oldest first. Entries stay until they are taken.
     *
     * @return list<Entry>
     */
    public function read(string $task, int $count = Ids::MAX_TAKE): array
    {
        Ids::name('task', $task);
        $this->checkProcess();
        $meta = $this->prefix(0) . ':meta';
        // The number of shards may have changed. The stream of a removed shard reads as empty.
        $shards = $this->ask($meta, 'HGET', $meta, 'shards');
        $shards = is_string($shards) ? $this->shardsOf($shards) : $this->config()->shards;
        $entries = [];
        for ($shard = 0; $shard < $shards; $shard++) {
            $stream = $this->prefix($shard) . ":outcomes:$task";
            foreach ($this->ask($stream, 'XRANGE', $stream, '-', '+', 'COUNT', (string) $count) as [$id, $flat]) {
                $entries[] = new Entry($shard, $id, $this->outcomesOf($id, $flat));
            }
        }
        return $entries;
    }

    /** Delete entries that were handled; return the number of verdicts in them. */
    public function take(string $task, Entry ...$entries): int
    {
        Ids::name('task', $task);
        $this->checkProcess();
        $ids = [];
        foreach ($entries as $entry) {
            $ids[$entry->shard][] = $entry->id;
        }
        $taken = 0;
        foreach ($ids as $shard => $its) {
            while ($its) {
                [, $verdicts, , $looked] = $this->run('take', $shard, [$task, ...array_slice($its, 0, Ids::MAX_TAKE)]);
                $taken += $verdicts;
                $its = array_slice($its, $looked);
            }
        }
        return $taken;
    }

    /** Send the waiting rows at the end of the request; an error is only a warning. */
    public function __destruct()
    {
        if (!$this->queue || $this->pid !== getmypid()) {
            return;
        }
        try {
            $this->flush();
        } catch (\Throwable $error) {
            trigger_error("acker-redis: a batch was given up, its trees expire: {$error->getMessage()}", E_USER_WARNING);
        }
    }

    private function __clone()
    {
    }

    /** After a fork the waiting rows, the lane and the connection belong to the parent. */
    private function checkProcess(): void
    {
        if ($this->pid === getmypid()) {
            return;
        }
        $this->pid = getmypid();
        $this->queue = [];
        $this->config = null;
        $this->redis = null;
        $this->newLane();
    }

    private function newLane(): void
    {
        $this->lane = bin2hex(random_bytes(16));
        $this->seq = 0;
    }

    private static function now(): float
    {
        return hrtime(true) / 1e9;
    }

    private function prefix(int $shard): string
    {
        return "acker:{{$this->namespace}:$shard}";
    }

    /**
     * Send all waiting batches. A batch stays in the queue until it is answered or given up: after an
     * interruption the next call sends it again, under the same number.
     */
    private function sendQueue(): void
    {
        $first = null;
        while ($this->queue) {
            $batch = $this->queue[0];
            try {
                $this->deliver($batch, self::now() + $this->retryFor);
                array_shift($this->queue);
            } catch (AckerException $error) {
                $first ??= $error;
                array_shift($this->queue);
                if ($this->onGivenUp) {
                    ($this->onGivenUp)($error, $batch->anchors());
                }
            }
        }
        if ($first) {
            throw $first;
        }
    }

    /** Return the configuration; read it if it is unknown, with retries like those of a batch. */
    private function known(float $deadline): Config
    {
        for ($pause = self::FIRST_PAUSE;; $pause = min(2 * $pause, self::LONGEST_PAUSE)) {
            try {
                return $this->config();
            } catch (AckerException $error) {
                if ($error->error !== 'UNAVAILABLE') {
                    throw $error;
                }
                self::waitForRetry($pause, $error, $deadline);
            }
        }
    }

    /** Sleep before a retry; throw the error if no time is left. */
    private static function waitForRetry(float $pause, AckerException $error, float $deadline): void
    {
        $wait = $pause * random_int(500, 1000) / 1000;
        if (self::now() + $wait >= $deadline) {
            throw $error;
        }
        usleep((int) ($wait * 1e6));
    }

    /** Apply a batch; retry until it is answered, or until a retry is no longer allowed. */
    private function deliver(Batch $batch, float $deadline): Applied
    {
        $refusedBy = 0;
        for ($pause = self::FIRST_PAUSE;; $pause = min(2 * $pause, self::LONGEST_PAUSE)) {
            try {
                return $this->attempt($batch);
            } catch (AckerException $error) {
                if (in_array($error->error, ['SHARD', 'NAMESPACE'], true)) {
                    $refusedBy = $this->repack($batch, $error, $refusedBy);
                } elseif (in_array($error->error, ['LANE', 'CONFLICT'], true)) {
                    $this->newLane(); // the old lane is not used again
                    throw $error;
                } elseif (!in_array($error->error, ['UNAVAILABLE', 'BACKLOG'], true) && !self::passes($error, $batch)) {
                    throw $error;
                }
                self::waitForRetry($pause, $error, $deadline);
            }
        }
    }

    /**
     * Return whether Redis refused a batch for a cause that may pass. A password that was never right does not.
     * Trees to be tracked do not wait for memory: they would hold up rows that free some.
     */
    private static function passes(AckerException $error, Batch $batch): bool
    {
        return $error->mayPass && $batch->sent && !($error->isFull && $batch->onlyTracks());
    }

    /**
     * Let a batch be packed again for the current number of shards. Returns the number that it was packed
     * for. The same number a second time is a final refusal, unless the namespace is resharding.
     */
    private function repack(Batch $batch, AckerException $error, int $refusedBy): int
    {
        $this->config = null;
        $sent = $batch->sent;
        if (!$sent || ($sent->refused() && $sent->shards === $refusedBy && !$this->reshard)) {
            throw $error;
        }
        if (!$sent->refused()) {
            throw new AckerException($error->error, "{$error->getMessage()}. A part of this batch may have been applied "
                . 'before, so the rest cannot be sent to other shards: give it up. Its trees expire; track those again '
                . 'that get no verdict', $error);
        }
        $batch->sent = null;
        return $sent->shards;
    }

    private function attempt(Batch $batch): Applied
    {
        if ($batch->isEmpty()) {
            return new Applied();
        }
        // The current configuration limits how long the fence holds.
        $config = $batch->sent ? $this->readConfig() : $this->config();
        if (!$batch->sent) {
            $parts = $batch->parts($config->shards);
            $batch->sent = new Sent($this->lane, $this->seq + 1, $config->shards, $parts);
            $this->seq += count($parts);
        }
        return $this->send($batch->sent, $config->fenceMs);
    }

    /** Only for the project's test cases: one attempt, under a given lane. */
    private function applyAs(Batch $batch, string $lane, int $seq, string $digest): Applied
    {
        if ($batch->isEmpty()) {
            return new Applied();
        }
        $config = $this->config();
        $batch->sent = new Sent($lane, $seq, $config->shards, $batch->parts($config->shards), $digest);
        return $this->send($batch->sent, $config->fenceMs);
    }

    private function send(Sent $sent, float $fenceMs): Applied
    {
        $sent->fenceMs = min($sent->fenceMs, $fenceMs);
        $applied = new Applied();
        foreach ($sent->parts as $number => $_) {
            $applied->add($sent->replies[$number] ??= $this->call($sent, $number));
        }
        return $applied;
    }

    /** Send one call once; throw LATE if its fence may have expired. */
    private function call(Sent $sent, int $number): Applied
    {
        $part = $sent->parts[$number];
        $first = $sent->times[$number] ??= hrtime(true);
        if ((hrtime(true) - $first) / 1e6 > $sent->fenceMs) {
            throw new AckerException('LATE', 'this batch was first sent too long ago to be sent again: its fence may have '
                . 'expired; let its trees expire');
        }
        $again = isset($sent->doubt[$number]);
        $sent->doubt[$number] = true;
        try {
            $reply = $this->run($part->script, $part->shard, [$sent->lane, $sent->fence($number), ...$part->argv]);
        } catch (AckerException $error) {
            $certain = $error->error === 'REDIS' ? $error->mayPass : $error->error !== 'UNAVAILABLE';
            if ($certain && !$again) {
                unset($sent->doubt[$number]);
            }
            throw $error;
        }
        $applied = new Applied();
        if ($reply[0] !== 0) {
            [, $applied->tracked, $applied->acked, $applied->failed] = $reply;
            $applied->rejected = array_map(fn (int $row) => $part->anchors[$row], array_values(unpack('n*', $reply[7])));
            return $applied;
        }
        $applied->repeated = true;
        $seq = $sent->seq + $number;
        if ((int) $reply[1] > $seq) {
            throw new AckerException('LANE', "lane $sent->lane is at $reply[1], this batch is $seq: a later batch, or another "
                . 'process, has used the lane; this batch is not applied again');
        }
        return $applied;
    }

    private function config(): Config
    {
        return $this->config ?? $this->readConfig();
    }

    private function readConfig(): Config
    {
        $flat = $this->run('status', 0, [])[5];
        $meta = [];
        for ($i = 0; $i + 1 < count($flat); $i += 2) {
            $meta[$flat[$i]] = $flat[$i + 1];
        }
        $patterns = ['buckets' => '/^[1-9][0-9]?$/D', 'tick_ms' => '/^[1-9][0-9]{0,12}$/D', 'salt' => '/^[0-9a-f]{32}$/D'];
        foreach ($patterns as $field => $pattern) {
            if (!preg_match($pattern, $meta[$field] ?? '')) {
                throw $this->tampered();
            }
        }
        if ($meta['buckets'] < Ids::MIN_BUCKETS || $meta['buckets'] > Ids::MAX_BUCKETS) {
            throw $this->tampered();
        }
        $shards = $this->shardsOf($meta['shards'] ?? '');
        $this->reshard = ($meta['reshard'] ?? '') !== '';
        $edges = ($meta['edges'] ?? '') === '' ? [] : explode(',', $meta['edges']);
        $ids = new IdMaker($edges, $meta['salt'], $this->unlisted);
        $this->lastIds = $ids;
        return $this->config = new Config($shards, ($meta['buckets'] - 1) * (float) $meta['tick_ms'], $ids);
    }

    /** Return a number of shards that Redis holds: a power of two up to MAX_SHARDS. */
    private function shardsOf(string $text): int
    {
        $shards = preg_match('/^[1-9][0-9]{0,3}$/D', $text) ? (int) $text : 0;
        if ($shards < 1 || $shards > Ids::MAX_SHARDS || $shards & ($shards - 1)) {
            throw $this->tampered();
        }
        return $shards;
    }

    private function tampered(): AckerException
    {
        return new AckerException('SCHEMA', $this->prefix(0) . ':meta has been tampered with');
    }

    // Redis

    /**
     * Call a script once. After UNAVAILABLE the script may have run.
     *
     * @param list<string> $argv
     * @return list<mixed>
     */
    private function run(string $name, int $shard, array $argv): array
    {
        if (!isset(self::$scripts[$name])) {
            $source = @file_get_contents(__DIR__ . "/../lua/$name.lua");
            if ($source === false) {
                AckerException::refuse("lua/$name.lua is missing: run make clients in a checkout of acker-redis,"
                    . ' and keep lua/ next to src/');
            }
            self::$scripts[$name] = [$source, sha1($source)];
        }
        [$source, $sha] = self::$scripts[$name];
        $prefix = $this->prefix($shard);
        $rest = ['2', $prefix, "$prefix:meta", ...$argv];
        $reply = $this->ask($prefix, 'EVALSHA', $sha, ...$rest) ?? $this->ask($prefix, 'EVAL', $source, ...$rest);
        if (!is_array($reply)) {
            throw new AckerException('REDIS', 'the reply of a script is not an array but ' . get_debug_type($reply)
                . '; give this client a separate connection, outside multi() and pipeline()');
        }
        return $reply;
    }

    private function connected(): \Redis|\RedisCluster
    {
        $redis = ($this->connect)();
        if ($redis instanceof \Redis) {
            // Otherwise phpredis would connect again after a lost reply, and wait there for that reply.
            $redis->setOption(\Redis::OPT_MAX_RETRIES, 0);
        }
        return $redis;
    }

    /** Return the reply of the node that has the key; null if that node does not know the script. */
    private function ask(string $key, string ...$words): mixed
    {
        $redis = null;
        try {
            $redis = $this->redis ?? $this->connected();
            // Until the reply is read completely no other call may use the connection: the next command
            // would read the rest of this reply.
            $this->redis = null;
            $redis->clearLastError();
            // Raw: no prefix, serializer or compression is applied.
            $reply = $redis instanceof \RedisCluster ? $redis->rawCommand($key, ...$words) : $redis->rawCommand(...$words);
            $words = $reply === false ? $redis->getLastError() : null;
            $this->redis = $redis;
        } catch (\RedisException | \RedisClusterException $error) {
            $words = $error->getMessage();
            if (!preg_match(self::REPLY, $words, $match)) {
                throw new AckerException('UNAVAILABLE', "Redis did not answer: $words; is it running and reachable?", $error);
            }
            $words = $match[1];
            $this->redis = $redis;
        } finally {
            if ($this->redis === null && $redis !== null) {
                try {
                    $redis->close();
                } catch (\Throwable) {
                    // already closed
                }
            }
        }
        if ($words === null) {
            return $reply;
        }
        return str_starts_with($words, 'NOSCRIPT') ? null : throw $this->refused($words);
    }

    /** Drop the connection: the address may lead to another master now. */
    private function leave(): void
    {
        try {
            $this->redis?->close();
        } catch (\Throwable) {
            // already closed
        }
        $this->redis = null;
    }

    private function refused(string $words): AckerException
    {
        $words = preg_replace(self::IN_SCRIPT, '', $words);
        if (preg_match('/^ACKER ([A-Z]+) (.*)/s', $words, $match)) {
            return new AckerException($match[1], $match[2]);
        }
        if (preg_match(self::DEMOTED, $words)) {
            $this->leave();
        }
        if (preg_match(self::PASSING, $words)) {
            return new AckerException('UNAVAILABLE', "Redis did not answer: $words; is it running and reachable?");
        }
        $full = str_starts_with($words, 'OOM');
        $passes = preg_match(self::PATIENT, $words) && !preg_match(self::NO_RIGHT_IN_SCRIPT, $words);
        return new AckerException('REDIS', $full
            ? 'Redis is at maxmemory and refused the call; nothing was changed. Raise maxmemory, lower high_water, or '
                . 'let the sources take their outcomes'
            : "Redis refused the call: $words", null, (bool) $passes, $full);
    }

    private static function malformed(string $words): AckerException
    {
        return new AckerException('SCHEMA', "$words: another version wrote it, or it was tampered with");
    }

    /**
     * Return the outcomes of an entry, one for each tree; those of a block by slot.
     *
     * @param list<string> $flat
     * @return list<Outcome>
     */
    private function outcomesOf(string $id, array $flat): array
    {
        $entry = [];
        for ($i = 0; $i + 1 < count($flat); $i += 2) {
            $entry[$flat[$i]] = $flat[$i + 1];
        }
        $found = isset($entry['block']) ? $this->outcomesOfBlock($entry) : $this->outcomesOfTrees($entry);
        if (($entry['n'] ?? '') !== (string) count($found)) {
            throw self::malformed("entry $id holds " . count($found) . " verdicts, not '" . ($entry['n'] ?? '') . "'");
        }
        return $found;
    }

    /**
     * @param array<string, string> $entry
     * @return list<Outcome>
     */
    private function outcomesOfTrees(array $entry): array
    {
        ['verdict' => $verdict, 'reason' => $reason] = $entry;
        $found = [];
        foreach (self::rows($entry) as $row) {
            // Without a why, but with cause, residual and idle time, if the tree expired.
            $more = $reason === 'expired' ? ['', ...array_slice($row, 3)] : [$row[3]];
            $found[] = $this->outcome($verdict, $reason, self::fromHex($row[0]), $row[1], $row[2], ...$more);
        }
        return $found;
    }

    /**
     * @param array<string, string> $entry
     * @return list<list<mixed>>
     */
    private static function rows(array $entry): array
    {
        return json_decode($entry['rows'] ?? '', true, 8, JSON_THROW_ON_ERROR);
    }

    /**
     * @param array<string, string> $entry
     * @return list<Outcome>
     */
    private function outcomesOfBlock(array $entry): array
    {
        ['verdict' => $verdict, 'reason' => $reason] = $entry;
        $block = self::fromHex('000' . $entry['block']);
        $one = fn (int $slot, string $said, string $because, string|int ...$more) => $this->outcome(
            $said, $because, Ids::blockAnchor($block, $slot), $entry['label'], (int) $entry['age'], ...$more,
        );
        if (isset($entry['rows'])) {
            return array_map(fn (array $row) => $one($row[0], $verdict, $reason, $row[1]), self::rows($entry));
        }
        $count = (int) ($entry['slots'] ?? 0);
        $all = $count > 0 ? range(0, $count - 1) : [];
        $present = isset($entry['present']) ? self::bitmap($entry, 'present') : $all;
        $failed = ($entry['failed'] ?? '') === '' ? [] : self::bitmap($entry, 'failed');
        $residuals = $verdict === 'mixed' ? self::residuals($entry) : [];
        $found = [];
        foreach (array_diff($present, $failed) as $slot) {
            if ($verdict !== 'mixed') {
                $found[] = $one($slot, $verdict, $reason);
            } elseif (isset($residuals[$slot])) {
                $found[] = $one($slot, 'nack', 'expired', '', $entry['cause'], $residuals[$slot], (int) $entry['idle']);
            } else {
                $found[] = $one($slot, 'ack', 'completed');
            }
        }
        return $found;
    }

    /**
     * Return the residuals of an expired block, in hex, by slot.
     *
     * @param array<string, string> $entry
     * @return array<int, string>
     */
    private static function residuals(array $entry): array
    {
        $nacked = self::bitmap($entry, 'nacked');
        $digits = $entry['residuals'] ?? '';
        if (strlen($digits) !== 16 * count($nacked) || !preg_match('/^[0-9a-f]*$/D', $digits)) {
            throw self::malformed(count($nacked) . " trees expired, with residuals '" . substr($digits, 0, 40) . "'");
        }
        return $nacked ? array_combine($nacked, str_split($digits, 16)) : [];
    }

    /**
     * Return the slots of a bitmap in hex, in order.
     *
     * @param array<string, string> $entry
     * @return list<int>
     */
    private static function bitmap(array $entry, string $name): array
    {
        ['slots' => $count, $name => $digits] = $entry + ['slots' => '', $name => ''];
        $slots = preg_match('/^([0-9a-f]{2})+$/D', $digits) ? Ids::slotsOf(hex2bin($digits), (int) $count) : null;
        $said = substr($digits, 0, 40);
        return $slots ?? throw self::malformed("bitmap $name of a block of $count slots is '$said'");
    }

    /** @param string $residual in hex */
    private function outcome(
        string $verdict,
        string $reason,
        int $anchor,
        string $sourceId,
        int $ageMs,
        string $why = '',
        string $cause = '',
        string $residual = '0000000000000000',
        int $idleMs = 0,
    ): Outcome {
        $sum = self::fromHex($residual);
        $edges = $sum === 0 ? [] : $this->config()->ids->edgesOf($sum);
        return new Outcome($verdict, $reason, $anchor, $sourceId, $why, $ageMs, $cause, $sum, $idleMs, $edges);
    }

    /** Return the number of 16 hex digits; hexdec would turn a large one into a float. */
    private static function fromHex(string $digits): int
    {
        return unpack('J', hex2bin($digits))[1];
    }
}
