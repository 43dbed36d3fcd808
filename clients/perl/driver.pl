use strict;
use warnings;

# Driver of this client for tests/languages; clients/DRIVER.md describes the requests.

use FindBin;
use lib "$FindBin::Bin/lib";
use JSON::PP ();
use Redis ();
use Acker::Redis;

$| = 1;
binmode $_ for \*STDIN, \*STDOUT;
my $json = JSON::PP->new->utf8->canonical;
my ($connection, $acker);

sub boolean { return $_[0] ? JSON::PP::true : JSON::PP::false }

sub row {
    my ($batch, $verb, $fields) = @_;
    my $anchor = $fields->{anchor};
    return $batch->track($anchor, $fields->{source_id}, $fields->{emitted}) if $verb eq 'track';
    return $batch->ack($anchor, $fields->{tuple}, $fields->{emitted}) if $verb eq 'ack';
    return $batch->fail($anchor, @$fields{qw(why tuple emitted)}) if $verb eq 'fail';
    return $batch->touch($anchor) if $verb eq 'touch';
    die "unknown row: $verb\n";
}

sub said {
    return { outcomes => [ map { [ @$_{qw(verdict reason)}, "$_->{anchor}", @$_{qw(source_id why)}, 0 + $_->{age_ms},
                $_->{cause}, length $_->{cause} ? sprintf('%016x', $_->{residual}) : '', 0 + $_->{idle_ms}, $_->{edges} ] }
              map { @{ $_->{outcomes} } } @_ ] };
}

my %ops = (
    connect => sub {
        my ($request) = @_;
        my $timeout = $request->{timeout_ms} / 1000;
        my ($first) = @{ $request->{nodes} };
        my @settings = (cnx_timeout => $timeout, read_timeout => $timeout, write_timeout => $timeout);
        $connection = {
            connect => sub { Redis->new(server => $_[0] // $first, @settings) },
            $request->{cluster} ? (nodes => $request->{nodes}) : (),
        };
        $acker = undef;
        return {};
    },
    begin => sub {
        my ($request) = @_;
        my @settings = (retry_for => $request->{retry_ms} / 1000, linger => $request->{linger_ms} / 1000);
        my $before = $acker && $acker->{redis};
        $acker = Acker::Redis->new(%$connection, namespace => $request->{namespace}, @settings);
        $acker->{redis} = $before if $before;
        return {};
    },
    apply => sub {
        my ($request) = @_;
        my $batch = Acker::Redis::Batch->new(length $request->{task} ? $request->{task} : undef);
        row($batch, %$_) for @{ $request->{rows} };
        utf8::encode($request->{producer});
        my $applied = $acker->_apply_as($batch, $request->{producer}, $request->{seq} || 0, $request->{digest});
        $applied->{rejected} = [ map {"$_"} @{ $applied->{rejected} } ];
        $applied->{repeated} = boolean($applied->{repeated});
        return $applied;
    },
    read => sub { return said($acker->read($_[0]{task})) },
    take => sub {
        my @entries = $acker->read($_[0]{task});
        $acker->take($_[0]{task}, @entries);
        return said(@entries);
    },
    track => sub {
        my ($request) = @_;
        return { emitted => $acker->track(@$request{qw(task source_id emit)}, edge => $request->{edge})->{ids} };
    },
    work => sub {
        my ($request) = @_;
        my $message = $acker->process(@{ $request->{inputs} });
        my ($emit, $edges, $keys) = @$request{qw(emit edges keys)};
        my @emitted = map { $message->emit($emit->[$_], edge => $edges->[$_], key => $keys->[$_]) } 0 .. $#$emit;
        my $end = $request->{end};
        if ($end eq 'fail') { $message->fail($request->{why}) }
        elsif ($end eq 'late') { $message->ack; $message->emit([0]) }
        elsif ($end ne 'none') { $message->$end }
        $acker->flush if $request->{flush};
        return { emitted => \@emitted };
    },
    flush => sub { $acker->flush; return {} },
    bench => sub {
        my ($request) = @_;
        my ($rows, $size, $trees) = @$request{qw(rows batch trees)};
        my @anchors = map { Acker::Redis::Batch::new_anchor() } 1 .. $trees;
        for (my $from = 0; $from < $trees; $from += $size) {
            my $batch = Acker::Redis::Batch->new('bench');
            my $to = $from + $size < $trees ? $from + $size : $trees;
            $batch->track($_, 'bench', [ Acker::Redis::Batch::new_ids(1) ]) for @anchors[ $from .. $to - 1 ];
            $acker->apply($batch);
        }
        my @tuples = Acker::Redis::Batch::new_ids($rows);
        my @edges = Acker::Redis::Batch::new_ids($rows);
        my $begun = Acker::Redis::_now();
        for (my $from = 0; $from < $rows; $from += $size) {
            my $batch = Acker::Redis::Batch->new;
            my $to = $from + $size < $rows ? $from + $size : $rows;
            $batch->ack($anchors[ $_ % $trees ], $tuples[$_], [ $edges[$_] ]) for $from .. $to - 1;
            $acker->apply($batch);
        }
        return { rows => $rows, seconds => Acker::Redis::_now() - $begun };
    },
);

while (my $line = <STDIN>) {
    my $request = $json->decode($line);
    my $op = $ops{ $request->{op} };
    my $answer = eval { $op ? $op->($request) : die "unknown op: $request->{op}\n" };
    if (!defined $answer) {
        my $error = $@;
        my $ours = ref $error && $error->isa('Acker::Redis::Error');
        $answer = $ours ? { error => $error->code, message => $error->message } : { error => 'DRIVER', message => "$error" };
    }
    print $json->encode($answer), "\n";
}
