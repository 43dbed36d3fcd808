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

// A client with a configuration.
$client = new Client(fn () => throw new Alarm(), 'n', linger: 1000);
$ids = new IdMaker(['mill', 'shop'], str_repeat('0f', 16), new ArrayObject());
(new ReflectionProperty($client, 'config'))->setValue($client, new Config(1, 1000.0, $ids));
$join = $client->process('7:40,8:41', '7:42');
check('a derived id', $join->emit(key: 'mill №2', edge: 'shop') === '7:83629229593426452,8:80305143502454682');
refused('a key that was used', fn () => $join->emit([0], 'mill №2'));
$join->ack();
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
