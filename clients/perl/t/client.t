# Tests that need no Redis; tests/languages of the project has all others.

use strict;
use warnings;
use utf8;
use FindBin;
use lib "$FindBin::Bin/../lib";
use Data::Dumper ();
use Test::More;
use Acker::Redis;

sub refused {
    my ($name, $code, $function) = @_;
    my $ok = eval { $function->(); 1 };
    my $error = $ok ? 'nothing' : $@;
    ok(ref $error && $error->code eq $code, "$name: $code") or diag $error;
}

my $batch = 'Acker::Redis::Batch';
my $double = 2**53 * 1.5;
for my $bad (0, -1, '9223372036854775808', '1e3', '0x10', ' 1', "1\n", 1.5, $double, 2**63, undef, [], '') {
    refused('id ' . (defined $bad ? "'$bad'" : 'undef'), REFUSED => sub { $batch->new->ack(7, $bad) });
}
ok($batch->new->ack(7, '9223372036854775807'), 'the largest id');
refused('slot 4095', REFUSED => sub { $batch->new->touch(1 << 62 | 4095) });
refused('a surrogate', REFUSED => sub { $batch->new('t')->track(1, "\x{D800}", []) });

my $why = Acker::Redis::Batch::clip("a\nb" . "\x{65e5}" x 300);
is($why, 'a b' . "\x{65e5}" x 84, 'a why is cut between characters');
my $acker = Acker::Redis->new(connect => sub { die 'must not connect' }, namespace => 'n', linger => 1000);
my $message = $acker->process('7:40');
$acker->process('7:41')->ack;
my $lane = $acker->{lane};
my $child = fork // die "cannot fork: $!";
if (!$child) {
    Test::More->builder->no_ending(1);
    $acker->flush;    # sends no rows of its parent
    my $other = !eval { $message->emit; 1 } && $@->code eq 'CLOSED' && $acker->{lane} ne $lane;
    exit($other && !@{ $acker->{queue} } ? 0 : 1);
}
waitpid $child, 0;
is($?, 0, 'a forked child has a new lane and no rows');
is(scalar @{ $acker->{queue} }, 1, 'the parent keeps its rows');

# An alarm during a call: the connection is dropped, the batch stays in the queue.
my $asked = 0;
{

    package Slow;
    sub new { return bless {}, shift }
    sub evalsha { $asked++; die "alarm\n" }
}
$acker = Acker::Redis->new(connect => sub { Slow->new }, namespace => 'n', linger => 1000);
$acker->process('7:41')->ack;
ok(!eval { $acker->flush; 1 } && $@ eq "alarm\n", 'an alarm propagates');
is_deeply([ $asked, $acker->{redis}, scalar @{ $acker->{queue} } ], [ 1, {}, 1 ], 'the connection is dropped, the batch is kept');

# Edges and keys. The first read of the configuration gets no reply, and is retried.
my %meta = (shards => 1, buckets => 3, tick_ms => 30000, edges => 'mill,shop', salt => '0123456789abcdef' x 2);
my @replies = (undef, [ 1, [], 0, [], 0, [%meta] ]);
{

    package Status;
    sub new { return bless {}, shift }
    sub evalsha { return shift @replies // die "Could not connect to Redis server: refused" }
}
$acker = Acker::Redis->new(connect => sub { Status->new }, namespace => 'n', linger => 1000);
$message = $acker->process('8:41,7:40', '7:42');
my @warnings;
is($message->emit(key => 'mül 2', edge => 'shop'), '7:98276201304332188,8:80181186318348059', 'a derived id with the code of its edge');
refused('a key twice', REFUSED => sub { $message->emit([0], key => 'mül 2') });
refused('an unknown option', REFUSED => sub { $message->emit(edges => 'shop') });
{
    local $SIG{__WARN__} = sub { push @warnings, @_ };
    my @codes = map { $message->emit([1], edge => "n\x{f6}") =~ /:(.*)/; $1 >> 55 } 1, 2;
    is_deeply(\@codes, [ 0, 0 ], 'ids without a code');
}
is(@warnings, 1, 'one warning of an unlisted edge');
like($warnings[0], qr/does not list edge n\xc3\xb6 \(it lists mill, shop\).* at \S*client\.t line/, 'it names the line');
unlike(Data::Dumper::Dumper($acker, $message), qr/$meta{salt}/, 'a dump does not show the salt');
is(scalar(grep { $_ >> 55 == 1 && $_ & (1 << 55) - 1 } $acker->ids(20, 'mill')), 20, 'ids of an edge');
# A cluster: the client skips unreachable nodes, and follows MOVED and ASK.
my @said;
my %node = (
    'b:1' => sub { die "[evalsha] MOVED 7 c:1,  at Redis.pm line 1.\n" },
    'c:1' => sub { die "[evalsha] ASK 7 d:1,  at Redis.pm line 1.\n" },
    'd:1' => sub { return [ 1, 2 ] },
);
{

    package Node;
    sub new { return bless { at => $_[1] }, $_[0] }
    sub asking { push @said, "asking $_[0]{at}" }
    sub evalsha { my ($self) = @_; push @said, $self->{at}; return $node{ $self->{at} }->() }
}
$acker = Acker::Redis->new(
    connect => sub { $node{ $_[0] } ? Node->new($_[0]) : die "Could not connect to Redis server at $_[0]: refused" },
    nodes => [ 'a:1', 'b:1' ], namespace => 'n',
);
is_deeply($acker->_run(status => 0), [ 1, 2 ], 'redirects lead to the reply');
is_deeply(\@said, [ 'b:1', 'c:1', 'asking d:1', 'd:1' ], 'the nodes in order');
@said = ();
$acker->_run(status => 0);
is_deeply(\@said, [ 'c:1', 'asking d:1', 'd:1' ], 'the client remembers MOVED, but not ASK');

done_testing;
