<?php

declare(strict_types=1);

// Driver of this client for tests/languages; clients/DRIVER.md describes the requests.

use AckerRedis\AckerException;
use AckerRedis\Batch;
use AckerRedis\Client;
use AckerRedis\Entry;
use AckerRedis\Ids;

require __DIR__ . '/src/Client.php';
ini_set('display_errors', 'stderr');
ini_set('memory_limit', '512M');

/** Answers requests, one at a time. */
final class Driver
{
    private Closure $connect;
    private Client $client;

    public function connect(array $nodes, bool $cluster, int $timeout_ms, string $library): array
    {
        $timeout = $timeout_ms / 1000;
        $this->connect = function () use ($nodes, $cluster, $timeout): Redis|RedisCluster {
            if ($cluster) {
                return new RedisCluster(null, $nodes, $timeout, $timeout);
            }
            [$host, $port] = explode(':', $nodes[0]);
            $redis = new Redis();
            $redis->connect($host, (int) $port, $timeout, null, 0, $timeout);
            return $redis;
        };
        return [];
    }

    public function begin(string $namespace, int $retry_ms, int $linger_ms): array
    {
        $this->client = new Client($this->connect, $namespace, retryFor: $retry_ms / 1000, linger: $linger_ms / 1000);
        return [];
    }

    public function apply(string $task, string $producer, string $seq, string $digest, array $rows): array
    {
        $batch = new Batch($task === '' ? null : $task);
        foreach ($rows as $row) {
            $verb = array_key_first($row);
            $this->fold($batch, $verb, $row[$verb]);
        }
        $apply = new ReflectionMethod(Client::class, 'applyAs');
        $found = $apply->invoke($this->client, $batch, $producer, (int) $seq, $digest);
        return [
            'tracked' => $found->tracked, 'acked' => $found->acked, 'failed' => $found->failed,
            'rejected' => array_map(strval(...), $found->rejected), 'repeated' => $found->repeated,
        ];
    }

    public function read(string $task): array
    {
        return self::said($this->client->read($task));
    }

    public function take(string $task): array
    {
        $entries = $this->client->read($task);
        $this->client->take($task, ...$entries);
        return self::said($entries);
    }

    public function track(string $task, string $source_id, int $emit, string $edge = ''): array
    {
        return ['emitted' => $this->client->track($task, $source_id, $emit, $edge)->ids];
    }

    public function work(
        array $inputs,
        array $emit,
        string $end,
        string $why,
        bool $flush,
        array $edges = [],
        array $keys = [],
    ): array {
        $message = $this->client->process(...$inputs);
        $emitted = [];
        foreach ($emit as $n => $places) {
            $emitted[] = $message->emit($places, $keys[$n] ?? null, $edges[$n] ?? '');
        }
        match ($end) {
            'ack' => $message->ack(),
            'fail' => $message->fail($why),
            'touch' => $message->touch(),
            'late' => [$message->ack(), $message->emit([0])],
            'none' => null,
        };
        if ($flush) {
            $this->client->flush();
        }
        return ['emitted' => $emitted];
    }

    public function flush(): array
    {
        $this->client->flush();
        return [];
    }

    public function bench(int $rows, int $batch, int $lanes, int $trees): array
    {
        $anchors = Ids::draw($trees, Ids::ANCHOR_MAX);
        foreach (array_chunk($anchors, $batch) as $some) {
            $tracking = new Batch('bench');
            foreach ($some as $anchor) {
                $tracking->track($anchor, 'bench', Ids::draw(1));
            }
            $this->client->apply($tracking);
        }
        [$tuples, $edges] = [Ids::draw($rows), Ids::draw($rows)];
        $begun = hrtime(true);
        for ($row = 0; $row < $rows;) {
            $made = new Batch();
            for ($last = min($rows, $row + $batch); $row < $last; $row++) {
                $made->ack($anchors[$row % $trees], $tuples[$row], [$edges[$row]]);
            }
            $this->client->apply($made);
        }
        return ['rows' => $rows, 'seconds' => (hrtime(true) - $begun) / 1e9];
    }

    private function fold(Batch $batch, string $verb, array $fields): void
    {
        $ids = fn (string $name) => array_map(Ids::parse(...), $fields[$name] ?? []);
        $id = fn (string $name) => isset($fields[$name]) ? Ids::parse($fields[$name]) : null;
        match ($verb) {
            'track' => $batch->track($id('anchor'), $fields['source_id'], $ids('emitted')),
            'ack' => $batch->ack($id('anchor'), $id('tuple'), $ids('emitted')),
            'fail' => $batch->fail($id('anchor'), $fields['why'], $id('tuple'), $ids('emitted')),
            'touch' => $batch->touch($id('anchor')),
        };
    }

    /** @param list<Entry> $entries */
    private static function said(array $entries): array
    {
        $found = [];
        foreach ($entries as $entry) {
            foreach ($entry->outcomes as $o) {
                $residual = $o->cause === '' ? '' : sprintf('%016x', $o->residual);
                $found[] = [
                    $o->verdict, $o->reason, (string) $o->anchor, $o->sourceId, $o->why, $o->ageMs,
                    $o->cause, $residual, $o->idleMs, $o->edges,
                ];
            }
        }
        return ['outcomes' => $found];
    }
}

$driver = new Driver();
while (($line = fgets(STDIN)) !== false) {
    $request = json_decode($line, true, 64, JSON_THROW_ON_ERROR);
    $op = $request['op'];
    unset($request['op']);
    try {
        $answer = $driver->$op(...$request);
    } catch (AckerException $error) {
        $answer = ['error' => $error->error, 'message' => $error->getMessage()];
    } catch (Throwable $error) {
        $answer = ['error' => 'DRIVER', 'message' => (string) $error];
    }
    echo json_encode($answer ?: new stdClass(), JSON_THROW_ON_ERROR | JSON_UNESCAPED_UNICODE), "\n";
}
