<?php

declare(strict_types=1);

// Tests that need no Redis; tests/languages of the project has all others.

use AckerRedis\AckerException;
use AckerRedis\Batch;
use AckerRedis\Client;
use AckerRedis\Config;
use AckerRedis\IdMaker;
use AckerRedis\Ids;

require __DIR__ . '/../src/Client.php';

function check(string $what, bool $found): void
{
    if (!$found) {
        fwrite(STDOUT, "failed: $what\n");
        exit(1);
    }
}

function refused(string $what, Closure $function, string $code = 'REFUSED'): void
{
    $error = null;
    try {
        $function();
    } catch (AckerException $error) {
    }
    check($what, $error?->error === $code);
}

foreach ([0, -1, 2 ** 63, 1.5, 2.0 ** 60, '5', null, true] as $id) {
    refused('id ' . var_export($id, true), fn () => (new Batch())->ack(7, $id));
}
check('the largest id', (new Batch())->ack(7, PHP_INT_MAX)->size() === 1);
foreach (['9223372036854775808', '-1', '1e3', '0x10', ' 1', "1\n", ''] as $digits) {
    refused("digits '$digits'", fn () => Ids::parse($digits));
}
check('the largest digits', Ids::parse('9223372036854775807') === PHP_INT_MAX);
refused('slot 4095', fn () => (new Batch())->touch(1 << 62 | 4095));
refused('a surrogate', fn () => (new Batch('t'))->track(1, "\xed\xa0\x80", []));
check('a why is cut between characters', Ids::clip("a\nb" . str_repeat('日', 300)) === 'a b' . str_repeat('日', 84));
check('a why that is not UTF-8', Ids::clip("\xff no") === '? no');
foreach (['p@0', 'orders/3@1000~2', 'ü@9999999999999999999'] as $label) {
    refused($label, fn () => (new Batch('t'))->trackBlock($label, [1], 1));
}
foreach (['p@', 'p@01', 'p@1~0', 'p@10000000000000000000', 'p@1~', '@1 '] as $label) {
    check($label, !(new Batch('t'))->trackBlock($label, [1], 1)->isEmpty());
}
refused('a block without a number', fn () => (new Batch('t'))->trackBlock('page', [1], null));

$large = new Batch('t');
for ($n = 0; $n < 64; $n++) {
    $large->trackBlock("block $n", array_fill(0, 4095, 1), $n);
}
check('a call has at most 1 MiB', array_map(fn ($part) => count($part->names), $large->parts(1)) === [31, 31, 2]);

final class Alarm extends Exception
{
}

$state = fn (Client $client, string $name) => (new ReflectionProperty($client, $name))->getValue($client);
$client = new Client(fn () => throw new Alarm(), 'n', linger: 1000);
$message = $client->process('7:40');
$client->process('7:41')->ack();
if (function_exists('pcntl_fork')) {
    $lane = $state($client, 'lane');
    $child = pcntl_fork();
    if ($child === 0) {
        $client->flush(); // sends no rows of its parent
        refused('a message of the parent', fn () => $message->emit(), 'CLOSED');
        check('another lane', $state($client, 'lane') !== $lane && $state($client, 'queue') === []);
        exit(0);
    }
    pcntl_waitpid($child, $status);
    check('a forked child has a new lane and no rows', pcntl_wexitstatus($status) === 0);
}
// An interruption during a call: the batch stays in the queue, under its number.
try {
    $client->flush();
    check('an alarm propagates', false);
} catch (Alarm) {
    check('the batch is kept', count($state($client, 'queue')) === 1);
}
(new ReflectionProperty($client, 'queue'))->setValue($client, []); // otherwise the destructor would retry

// A client with a configuration. The expected ids and rows are those of the Python client.
$clientOf = function (string ...$edges) {
    $client = new Client(fn () => throw new Alarm(), 'n', linger: 1000);
    $ids = new IdMaker($edges, str_repeat('0f', 16), new ArrayObject());
    (new ReflectionProperty($client, 'config'))->setValue($client, new Config(1, 1000.0, $ids));
    return $client;
};
$plain = $clientOf()->process('7:40,8:41', '7:42');
check('63 bits', $plain->emit(key: 'mill №2') === '7:2962338702207620103,8:2111372662918847227');
$client = $clientOf('mill', 'shop');
$join = $client->process('7:40,8:41', '7:42');
check('a derived id', $join->emit(key: 'mill №2', edge: 'shop') === '7:83629229593426452,8:80305143502454682');
foreach ([$clientOf(), $client] as $one) {
    check('the number of a block', $one->ids()->block('shop', 'page №2') === 1057557820031455);
}
refused('a label of Spark', fn () => (new Client(fn () => throw new Alarm(), 'n'))->trackBlock('t', 'p@7', [1]));
refused('a key that was used', fn () => $join->emit([0], 'mill №2'));
$join->ack();
$deltas = $state($client, 'queue')[0]->parts(1)[0]->argv[2];
check('whole rows with the code', array_values(unpack('J*', $deltas)) === [83629229593426454, 80305143502454707]);

$warnings = [];
set_error_handler(function (int $level, string $words) use (&$warnings) {
    $warnings[] = $words;
    return true;
});
$client->process('7:43')->emit(edge: 'bin');
$client->process('7:43')->emit(edge: 'bin');
restore_error_handler();
check('an unlisted edge is logged once', count($warnings) === 1 && str_contains($warnings[0], "edge 'bin'"));
$codes = array_map(fn (int $id) => $id >> 55, $client->ids()->draw(9, 'shop'));
check('codes', array_unique($codes) === [2]);
ob_start();
var_dump($client, $join);
var_export($client->ids());
check('the salt is hidden', !str_contains(ob_get_clean(), '0f0f'));
(new ReflectionProperty($client, 'queue'))->setValue($client, []);

$record = pack('JC', 9, 1) . str_repeat("\0", 10) . "\1t" . 'a \"b\" \\\\é';
$tree = (new ReflectionMethod(Client::class, 'tree'))->invoke(null, $record, 0);
check('a record', array_values($tree) === [9, true, 0, 't', 'a "b" \\é', '']);

// An entry of a block: slot 0 has expired, slot 3 is complete, slot 9 has failed, the others are absent.
$mixed = [
    'verdict' => 'mixed', 'reason' => 'expired', 'n' => '2', 'block' => '0000000000007', 'label' => 'page',
    'age' => '5', 'cause' => 'idle', 'idle' => '4', 'slots' => '10', 'nacked' => '8000', 'failed' => '0040',
    'residuals' => '00000000000000ff', 'present' => '9040',
];
$read = function (array $changed) use ($client, $mixed): array {
    $flat = [];
    foreach (array_filter([...$mixed, ...$changed], fn ($value) => $value !== null) as $name => $value) {
        array_push($flat, $name, $value);
    }
    $outcomes = (new ReflectionMethod(Client::class, 'outcomesOf'))->invoke($client, '1-0', $flat);
    return array_map(fn ($o) => [$o->verdict, $o->anchor & 4095, $o->residual], $outcomes);
};
check('an expired block', $read([]) === [['nack', 0, 255], ['ack', 3, 0]]);
$acked = ['verdict' => 'ack', 'reason' => 'completed', 'nacked' => null, 'residuals' => null];
check('a complete block', $read($acked) === [['ack', 0, 0], ['ack', 3, 0]]);
$wrong = [['present', '9060'], ['failed', '1040'], ['nacked', '9000'], ['residuals', str_repeat('0', 15) . 'x']];
foreach (['failed', 'nacked', 'present'] as $name) {
    foreach (['90', '904', '90400', '904000', '9g40', '9041', '0x40', '[0,3]', "9040\n"] as $digits) {
        $wrong[] = [$name, $digits];
    }
}
foreach (['failed', 'nacked', 'present', 'residuals', 'slots', 'n'] as $name) {
    array_push($wrong, [$name, ''], [$name, null], [$name, '0']);
}
foreach ($wrong as [$name, $value]) {
    refused("$name " . var_export($value, true), fn () => $read([$name => $value]), 'SCHEMA');
}
check('a slot after the first byte', Ids::slotsOf("\x80\x40", 10) === [0, 9]);

// The replies of show for slots of a block of ten trees.
$show = function (int $slot, int $flags, ?string $sums, string ...$bitmaps): ?array {
    $header = str_repeat("\0", 10) . pack('Cn', $flags, 10) . str_repeat('0', 8) . "\1tpage";
    $show = new ReflectionMethod(Client::class, 'treeInBlock');
    return $show->invoke(null, 1 << 62 | $slot, 0, $header, $sums, ...$bitmaps);
};
$sums = pack('J*', ...range(1, 10));
check('a tree of a full block', array_values($show(9, 0, $sums, '', '')) === [10, false, 0, 't', 'page', '']);
check('a failed tree', $show(9, 2, $sums, "\x80\x40", "\x90\x40")['failed']);
check('an absent slot', $show(1, 2, $sums, '', "\x90\x40") === null && $show(10, 0, $sums, '', '') === null);
foreach ([
    [0, null, '', ''], [0, substr($sums, 8), '', ''], [2, $sums, '', ''], [0, $sums, '', "\xff\xc0"],
    [0, $sums, "\x80", ''], [2, $sums, '', "\x90"], [0, $sums, "\x80\x41", ''],
    [4, $sums, '', ''], [4, $sums, "\0\0", ''], [2, $sums, "\x40\0", "\x90\x40"], [2, $sums, '', "\0\0"],
] as $number => $damaged) {
    refused("damaged block $number", fn () => $show(0, ...$damaged), 'SCHEMA');
}
