package Acker::Redis;

# Track tuple trees, ack and fail messages, read the verdicts. lua/README.md of the project describes
# the wire protocol and retries.

use strict;
use warnings;
use Carp ();
use Digest::SHA ();
use File::Basename ();
use JSON::PP ();
use Time::HiRes ();
use Acker::Redis::Batch qw(refuse new_ids new_anchor block_anchor slots_of check_name MAX_SHARDS MIN_BUCKETS MAX_BUCKETS
  MAX_TAKE);
use Acker::Redis::Ids ();
use Acker::Redis::Message ();

our $VERSION = '0.1.0';

use constant { FIRST_PAUSE => 0.05, LONGEST_PAUSE => 0.5 };
use constant IDS_RETRY => 2;       # seconds until the next attempt to read edges and salt
use constant MAX_REDIRECTS => 5;

# From acker_redis/protocol/codes.py, by python -m proof.spec
# Transient states: start-up, failover, a migrating slot, a long script, a full disk.
my $PASSING = qr/\A(?:ERR[ ]max[ ]number[ ]of[ ]clients[ ]reached
  |(?:MOVED|ASK|LOADING|BUSY|TRYAGAIN|CLUSTERDOWN|MASTERDOWN|READONLY|NOREPLICAS|UNBLOCKED|REDIRECT|MISCONF))\b/x;
# Refusals that may pass: memory is freed, a password or a right changes.
my $PATIENT = qr/\A(?:OOM|NOAUTH|WRONGPASS|NOPERM)\b/;
# Only a new connection can succeed, perhaps to another node.
my $DEMOTED = qr/\A(?:CLUSTERDOWN\b|(?:LOADING|MASTERDOWN|READONLY|NOREPLICAS|UNBLOCKED|REDIRECT|NOAUTH|WRONGPASS)\b)/;

# The lack of a right to a single command of a script: commands before it may have run.
my $NO_RIGHT_IN_SCRIPT = qr/The user executing the script can't |ACL failure in script: /;
# Prefix of Redis 6.2 before the error of a command inside a script.
my $IN_SCRIPT = qr/\A(?:ERR )?Error running script .*?: -?(?=[A-Z]+ )/s;
# Error texts of Redis.pm when no reply came.
my $UNANSWERED = qr/Redis server|any server|sentinel|answer type|error condition/i;
my %SCRIPTS = map { $_ => _script($_) } qw(apply apply_blocks status take);
my $JSON = JSON::PP->new->utf8;

sub _script {
    my ($name) = @_;
    my $here = File::Basename::dirname(__FILE__);
    # Next to the modules if installed, else in the folder of the distribution.
    my ($path) = grep { -e } map {"$_/$name.lua"} "$here/Redis/lua", "$here/../../lua";
    open my $file, '<:raw', $path // "$here/Redis/lua/$name.lua" 
        or die "cannot read $name.lua: $!; run make clients in a checkout of acker-redis\n";
    my $source = do { local $/; <$file> };
    return { source => $source, sha => Digest::SHA::sha1_hex($source) };
}

sub new {
    my ($class, %given) = @_;
    my $self = bless {
        connect     => delete $given{connect},
        nodes       => delete $given{nodes},
        namespace   => check_name('namespace', delete $given{namespace}),
        retry_for   => delete $given{retry_for} // 10,
        linger      => delete $given{linger} // 0.002,
        on_given_up => delete $given{on_given_up},
        unlisted    => {},
    }, $class;
    refuse('unknown setting: ' . join ', ', sort keys %given) if %given;
    refuse('connect is a function that returns a new Redis; in a cluster it gets the host:port')
      if ref $self->{connect} ne 'CODE';
    refuse('nodes is a reference to an array of host:port of at least one node of a cluster')
      if defined $self->{nodes} && (ref $self->{nodes} ne 'ARRAY' || !@{ $self->{nodes} });
    $self->_start;
    return $self;
}

# Start without connections and rows, under a new lane.
sub _start {
    my ($self) = @_;
    # For a cluster: known lists the nodes in the order to ask them, routes has the node of each shard.
    @$self{qw(pid queue since config redis routes)} = ($$, [], 0, undef, {}, {});
    $self->{known} = [ $self->{nodes} ? @{ $self->{nodes} } : '' ];
    $self->_new_lane;
}

# Draw a lane name that is unique to this process; its numbers start at 1.
sub _new_lane {
    my ($self) = @_;
    $self->{lane} = unpack 'H*', pack 'Q>*', new_ids(2);
    $self->{seq} = 0;
}

# After a fork the waiting rows, the lane and the connections belong to the parent.
sub _check_process { $_[0]->_start if $_[0]{pid} != $$ }

# Sources

sub track {
    my ($self, $task, $source_id, $emit, %options) = @_;
    $emit //= 1;
    my $edge = delete $options{edge};
    refuse('track has the option edge, not ' . join ', ', sort keys %options) if %options;
    refuse("a tree has 0 or more first messages, not '$emit'") if $emit !~ /\A[0-9]{1,6}\z/;
    my ($anchor, @ids) = (new_anchor(), $self->_maker->first_messages($emit, $edge));
    my $applied = $self->apply(Acker::Redis::Batch->new($task)->track($anchor, $source_id, \@ids));
    return { anchor => $anchor, ids => [ map {"$anchor:$_"} @ids ], rejected => @{ $applied->{rejected} } > 0 };
}

# Return random tuple ids for the rows that a program makes itself.
sub ids {
    my ($self, $count, $edge) = @_;
    my $maker = $self->_maker;
    my $code = $maker->code($edge);
    return map { $_ | $code } $maker->draw($count);
}

# Bolts

sub process {
    my ($self, @texts) = @_;
    return Acker::Redis::Message->new($self, @texts);
}

# Add the whole rows of a message, [anchor, delta, flags, why].
sub add {
    my ($self, @rows) = @_;
    $self->_check_process;
    my $queue = $self->{queue};
    for my $row (@rows) {
        if (!@$queue || $queue->[-1]{sent} || $queue->[-1]->is_full) {
            push @$queue, Acker::Redis::Batch->new;
            $self->{since} = _now();
        }
        $queue->[-1]->add(@$row);
    }
    $self->_send_queue
      if @$queue > 1 || (@$queue && ($queue->[-1]->is_full || _now() - $self->{since} >= $self->{linger}));
    return;
}

sub flush {
    my ($self) = @_;
    $self->_check_process;
    $self->_send_queue;
    return;
}

sub apply {
    my ($self, $batch) = @_;
    $self->_check_process;
    return $self->_deliver($batch);
}

# Outcomes

sub outcomes {
    my ($self, $task, $handle) = @_;
    while (my @entries = $self->read($task)) {
        for my $entry (@entries) {
            $handle->($_) for @{ $entry->{outcomes} };
            $self->take($task, $entry);
        }
    }
    return;
}

sub read {
    my ($self, $task, $count) = @_;
    check_name('task', $task);
    $self->_check_process;
    my ($known, $maker) = @{ $self->_config }{qw(shards maker)};
    # The number of shards may have changed. The stream of a removed shard reads as empty.
    my $shards = $self->_ask(0, hget => $self->_prefix(0) . ':meta', 'shards') // $known;
    die $self->_tampered if !_is_shards($shards);
    my @entries;
    for my $shard (0 .. $shards - 1) {
        my $stream = $self->_prefix($shard) . ":outcomes:$task";
        my $found = $self->_ask($shard, xrange => $stream, '-', '+', 'COUNT', $count // MAX_TAKE);
        push @entries, map { _entry($maker, $shard, @$_) } @$found;
    }
    return @entries;
}

sub take {
    my ($self, $task, @entries) = @_;
    check_name('task', $task);
    $self->_check_process;
    my ($taken, %ids) = (0);
    push @{ $ids{ $_->{shard} } }, $_->{id} for @entries;
    for my $shard (sort { $a <=> $b } keys %ids) {
        my @ids = @{ $ids{$shard} };
        while (@ids) {
            my @some = @ids[ 0 .. (@ids > MAX_TAKE ? MAX_TAKE : @ids) - 1 ];
            my $reply = $self->_run(take => $shard, $task, @some);
            $taken += $reply->[1];
            splice @ids, 0, $reply->[3];
        }
    }
    return $taken;
}

sub _malformed {
    die Acker::Redis::Error->new(SCHEMA => "$_[0]: another version wrote it, or it was tampered with");
}

# Return an entry of a stream.
sub _entry {
    my ($maker, $shard, $id, $fields) = @_;
    my %entry = @$fields;
    my $outcomes = _outcomes($maker, %entry);
    my $n = $entry{n} // '';
    _malformed("entry $id holds " . @$outcomes . " verdicts, not '$n'") if $n ne @$outcomes;
    return { shard => $shard, id => $id, outcomes => $outcomes };
}

# Return the outcomes of an entry of a stream, one for each tree; those of a block by slot.
sub _outcomes {
    my ($maker, %entry) = @_;
    my ($verdict, $reason) = @entry{qw(verdict reason)};
    # The end of an expired tree is its cause, its residual in hex, and the ms since its last row.
    my $one = sub {
        my ($said, $because, $anchor, $source_id, $age_ms, $why, $cause, $hex, $idle_ms) = @_;
        my $residual = _unhex($hex // '0' x 16);
        return { verdict => $said, reason => $because, anchor => $anchor, source_id => $source_id, why => $why,
            age_ms => $age_ms, cause => $cause // '', residual => $residual, idle_ms => $idle_ms // 0,
            edges => [ $maker->edges_of($residual) ] };
    };
    if (!exists $entry{block}) {
        my @rows = @{ $JSON->decode($entry{rows}) };
        return [ map {
            my ($hex, $source_id, $age_ms, @more) = @$_;
            $one->($verdict, $reason, _unhex($hex), $source_id, $age_ms, $reason eq 'expired' ? ('', @more) : @more);
        } @rows ];
    }
    my $block = _unhex("000$entry{block}");
    my $label = _text($entry{label});
    my $of = sub {
        my ($slot, $said, $because, @more) = @_;
        return $one->($said, $because, block_anchor($block, $slot), $label, 0 + $entry{age}, @more);
    };
    return [ map { $of->($_->[0], $verdict, $reason, $_->[1]) } @{ $JSON->decode($entry{rows}) } ] if $entry{rows};
    my $count = ($entry{slots} // '') =~ /\A([1-9][0-9]{0,3})\z/ ? $1 : 0;
    my $present = exists $entry{present} ? _bitmap(\%entry, 'present', $count) : [ 0 .. $count - 1 ];
    my %failed = map { $_ => 1 } length($entry{failed} // '') ? @{ _bitmap(\%entry, 'failed', $count) } : ();
    my $residuals = $verdict eq 'mixed' ? _residuals(\%entry, $count) : {};
    my @found;
    for my $slot (grep { !$failed{$_} } @$present) {
        push @found, $of->($slot,
              $verdict ne 'mixed'    ? ($verdict, $reason, '')
            : $residuals->{$slot}    ? ('nack', 'expired', '', $entry{cause}, $residuals->{$slot}, 0 + $entry{idle})
            :                          ('ack', 'completed', ''));
    }
    return \@found;
}

# Return the residuals of an expired block, in hex, by slot.
sub _residuals {
    my ($entry, $count) = @_;
    my ($nacked, $digits) = (_bitmap($entry, 'nacked', $count), $entry->{residuals} // '');
    _malformed(@$nacked . " trees expired, with residuals '" . substr($digits, 0, 40) . q{'})
      if length $digits != 16 * @$nacked || $digits =~ /[^0-9a-f]/;
    my %residuals;
    @residuals{@$nacked} = unpack '(a16)*', $digits;
    return \%residuals;
}

# Return the slots of a bitmap in hex, in order.
sub _bitmap {
    my ($entry, $name, $count) = @_;
    my $digits = $entry->{$name} // '';
    my $slots = $digits =~ /\A(?:[0-9a-f]{2})+\z/ ? slots_of(pack('H*', $digits), $count) : undef;
    return $slots // _malformed("bitmap $name of a block of $count slots is '" . substr($digits, 0, 40) . q{'});
}

# Return the number that 16 hex digits stand for. hex() would warn of 64-bit numbers.
sub _unhex { return unpack 'Q>', pack 'H16', $_[0] }

# Batches

# Send all waiting batches. A batch stays in the queue until it is answered or given up: after an
# interruption the next call sends it again, under the same number.
sub _send_queue {
    my ($self) = @_;
    my $first;
    while (my $batch = $self->{queue}[0]) {
        my $error = _caught(sub { $self->_deliver($batch) });
        shift @{ $self->{queue} };
        next if !$error;
        $first //= $error;
        $self->{on_given_up}->($error, $batch->anchors) if $self->{on_given_up};
    }
    die $first if $first;
}

# Apply a batch; retry until it is answered, or until a retry is no longer allowed.
sub _deliver {
    my ($self, $batch) = @_;
    my $deadline = _now() + $self->{retry_for};
    my ($pause, $refused_by) = (FIRST_PAUSE, 0);
    while (1) {
        my $applied;
        my $error = _caught(sub { $applied = $self->_attempt($batch) });
        return $applied if !$error;
        my $code = $error->code;
        $refused_by = $self->_repack($batch, $error, $refused_by) if $code =~ /\A(?:SHARD|NAMESPACE)\z/;
        $self->_new_lane if $code =~ /\A(?:LANE|CONFLICT)\z/;    # the old lane is not used again
        # A password that was never right does not pass. Trees to be tracked do not wait for memory: they would
        # hold up rows that free some.
        my $passes = $error->may_pass && $batch->{sent} && !($error->{full} && $batch->only_tracks);
        die $error if !$passes && $code !~ /\A(?:UNAVAILABLE|BACKLOG|SHARD|NAMESPACE)\z/;
        $pause = _pause($pause, $deadline, $error);
    }
}

# Wait before a retry, and return the next pause; die of the error if the retry would be too late.
sub _pause {
    my ($pause, $deadline, $error) = @_;
    my $wait = $pause * (0.5 + rand(0.5));
    die $error if _now() + $wait >= $deadline;
    Time::HiRes::sleep($wait);
    return 2 * $pause < LONGEST_PAUSE ? 2 * $pause : LONGEST_PAUSE;
}

# Let a batch be packed again for the current number of shards. Returns the number that it was packed
# for. The same number a second time is a final refusal, unless the namespace is resharding.
sub _repack {
    my ($self, $batch, $error, $refused_by) = @_;
    $self->{config} = undef;
    my $sent = $batch->{sent} or die $error;
    if (%{ $sent->{doubt} } || %{ $sent->{replies} }) {
        die Acker::Redis::Error->new($error->code, $error->message . '. A part of this batch may have been applied '
              . 'before, so the rest cannot be sent to other shards: give it up. Its trees expire; track those again '
              . 'that get no verdict');
    }
    die $error if $sent->{shards} == $refused_by && !$self->{reshard};
    $batch->{sent} = undef;
    return $sent->{shards};
}

sub _attempt {
    my ($self, $batch) = @_;
    return _combine({ parts => [] }) if $batch->is_empty;
    # The current configuration limits how long the fence holds.
    my $config = $batch->{sent} ? $self->_read_config : $self->_config;
    my $sent = $batch->{sent} //= $self->_seal($batch, $config);
    $sent->{fence_ms} = $config->{fence_ms} if $config->{fence_ms} < ($sent->{fence_ms} // 9e15);
    # //= would leave a key when the call dies, as if the part had been answered.
    for my $number (grep { !$sent->{replies}{$_} } 0 .. $#{ $sent->{parts} }) {
        my $reply = $self->_call($sent, $number);
        $sent->{replies}{$number} = $reply;
    }
    return _combine($sent);
}

# Fix the bytes and numbers of a batch; each retry sends exactly these.
sub _seal {
    my ($self, $batch, $config) = @_;
    my $parts = $batch->parts($config->{shards});
    my $first = $self->{seq} + 1;
    $self->{seq} += @$parts;
    return { lane => $self->{lane}, seq => $first, shards => $config->{shards}, parts => $parts,
        times => {}, replies => {}, doubt => {} };
}

# Only for the project's test cases: one attempt, under a given lane.
sub _apply_as {
    my ($self, $batch, $lane, $seq, $digest) = @_;
    return _combine({ parts => [] }) if $batch->is_empty;
    my $config = $self->_config;
    my %sent = (lane => $lane, seq => $seq, digest => $digest, fence_ms => $config->{fence_ms}, times => {}, doubt => {});
    my $sent = $batch->{sent} = { %sent, parts => $batch->parts($config->{shards}) };
    $sent->{replies}{$_} = $self->_call($sent, $_) for 0 .. $#{ $sent->{parts} };
    return _combine($sent);
}

# Send one call once; die of LATE if its fence may have expired.
sub _call {
    my ($self, $sent, $number) = @_;
    my $part = $sent->{parts}[$number];
    my $first = $sent->{times}{$number} //= _now();
    die Acker::Redis::Error->new(
        LATE => 'this batch was first sent too long ago to be sent again: its fence may have expired; '
          . 'let its trees expire')
      if _now() > $first + $sent->{fence_ms} / 1000;
    my $seq = $sent->{seq} + $number;
    my $digest = $sent->{digest} // Acker::Redis::Batch::digest($part);
    my $fence = $sent->{lane} eq '' ? '' : $digest eq '' ? $seq : "$seq:$digest";
    my $again = $sent->{doubt}{$number};
    $sent->{doubt}{$number} = 1;
    my $reply;
    my $error = _caught(sub {
        $reply = $self->_run($part->{script}, $part->{shard}, $sent->{lane}, $fence, @{ $part->{argv} });
    });
    if ($error) {
        my $certain = $error->code eq 'REDIS' ? $error->may_pass : $error->code ne 'UNAVAILABLE';
        delete $sent->{doubt}{$number} if $certain && !$again;
        die $error;
    }
    return _read_reply($part, $reply) if $reply->[0] != 0 || $reply->[1] <= $seq;
    die Acker::Redis::Error->new(LANE => "lane $sent->{lane} is at $reply->[1], this batch is $seq: a later batch, or "
          . 'another process, has used the lane; this batch is not applied again');
}

sub _read_reply {
    my ($part, $reply) = @_;
    return { repeated => 1, tracked => 0, acked => 0, failed => 0, rejected => [] } if $reply->[0] == 0;
    my %read = (tracked => 0 + $reply->[1], acked => 0 + $reply->[2], failed => 0 + $reply->[3]);
    return { %read, rejected => [ map { $part->{anchors}[$_] } unpack 'n*', $reply->[7] ] };
}

sub _combine {
    my ($sent) = @_;
    my %applied = (tracked => 0, acked => 0, failed => 0, rejected => [], repeated => 0);
    for my $number (0 .. $#{ $sent->{parts} }) {
        my $reply = $sent->{replies}{$number};
        $applied{repeated} ||= $reply->{repeated} // 0;
        $applied{$_} += $reply->{$_} for qw(tracked acked failed);
        push @{ $applied{rejected} }, @{ $reply->{rejected} };
    }
    return \%applied;
}

# The number of shards, how many ms a fence holds, and the maker of ids.
sub _config { return $_[0]{config} // $_[0]->_read_config }

# Return the maker of the namespace's ids. If the configuration must be read first, this is retried.
sub _maker {
    my ($self) = @_;
    $self->_check_process;
    my ($deadline, $pause) = (_now() + $self->{retry_for}, FIRST_PAUSE);
    while (!$self->{config}) {
        my $error = _caught(sub { $self->_read_config }) or last;
        die $error if $error->code ne 'UNAVAILABLE';
        $pause = _pause($pause, $deadline, $error);
    }
    return $self->{config}{maker};
}

# Return the maker of the ids of a message's children. If the configuration is not known, it is read once, and while
# Redis does not answer, ids are made that are right in any namespace. Derived ids wait for the salt.
sub _maker_of {
    my ($self, $derived) = @_;
    $self->_check_process;
    return $self->_maker if $self->{config} || $derived;
    my ($last, $begun) = ($self->{last_ids}, _now());
    my $unknown = Acker::Redis::Ids->new([], undef, {});
    return $unknown if !$last && $begun < ($self->{ids_due} // 0);
    my $error = _caught(sub { $self->_read_config }) or return $self->{config}{maker};
    return $last if $last;
    die $error if $error->code ne 'UNAVAILABLE';
    Carp::carp("$self->{namespace}: messages that are emitted now carry no edge, because edges and salt could not be "
          . 'read; a verdict cannot tell on which edge one is lost: ' . $error->message)
      if !$self->{ids_due};
    my $wait = 10 * (_now() - $begun);
    $self->{ids_due} = _now() + ($wait > IDS_RETRY ? $wait : IDS_RETRY);
    return $unknown;
}

sub _read_config {
    my ($self) = @_;
    my %meta = @{ $self->_run(status => 0)->[5] };
    my $salt = delete $meta{salt};    # secret: in no message
    my $valid = ($salt // '') =~ /\A[0-9a-f]{32}\z/;
    $valid &&= _is_shards($meta{shards}) && ($meta{buckets} // '') =~ /\A[1-9][0-9]?\z/;
    $valid &&= $meta{buckets} >= MIN_BUCKETS && $meta{buckets} <= MAX_BUCKETS;
    $valid &&= ($meta{tick_ms} // '') =~ /\A[1-9][0-9]{0,12}\z/;
    die $self->_tampered if !$valid;
    $self->{reshard} = length($meta{reshard} // '') > 0;
    $self->{last_ids} = Acker::Redis::Ids->new([ split /,/, $meta{edges} // '' ], $salt, $self->{unlisted});
    return $self->{config} = {
        shards   => 0 + $meta{shards},
        fence_ms => ($meta{buckets} - 1) * $meta{tick_ms},
        maker    => $self->{last_ids},
    };
}

# Return whether a text is a number of shards: a power of two up to MAX_SHARDS.
sub _is_shards {
    my ($text) = @_;
    return ($text // '') =~ /\A[1-9][0-9]{0,3}\z/ && $text <= MAX_SHARDS && !($text & $text - 1);
}

sub _tampered { return Acker::Redis::Error->new(SCHEMA => $_[0]->_prefix(0) . ':meta has been tampered with') }

# Redis

sub _now { return Time::HiRes::clock_gettime(Time::HiRes::CLOCK_MONOTONIC()) }

sub _prefix { return "acker:{$_[0]{namespace}:$_[1]}" }

sub _text {
    my ($bytes) = @_;
    utf8::decode($bytes);
    return $bytes;
}

# Return the Acker::Redis::Error that a function died of, or undef; any other error propagates.
sub _caught {
    my ($function) = @_;
    local ($@, $SIG{__DIE__});
    return undef if eval { $function->(); 1 };
    my $error = $@;
    return $error if ref $error && eval { $error->isa('Acker::Redis::Error') };
    die $error;
}

# Call a script once. After UNAVAILABLE the script may have run.
sub _run {
    my ($self, $name, $shard, @argv) = @_;
    my $prefix = $self->_prefix($shard);
    my $script = $SCRIPTS{$name};
    my @rest = (2, $prefix, "$prefix:meta", @argv);
    my $reply;
    my $error = _caught(sub { $reply = $self->_ask($shard, evalsha => $script->{sha}, @rest) });
    return $reply if !$error;
    die $error if ($error->{reply} // '') !~ /\ANOSCRIPT/;
    return $self->_ask($shard, eval => $script->{source}, @rest);
}

# Send a command to a shard. Redis.pm does not support clusters, so this follows MOVED and ASK.
sub _ask {
    my ($self, $shard, $command, @words) = @_;
    my $node = $self->{routes}{$shard} // $self->{known}[0];
    my $asking = 0;
    for my $hop (0 .. MAX_REDIRECTS) {
        my ($reply, $words);
        my $error = _caught(sub { ($reply, $words) = $self->_send($node, $asking, $command, @words) });
        if ($error) {
            # Nothing was sent: another node may know the new owner of the keys.
            die $error if !$error->{unsent} || !$self->{nodes} || $hop == MAX_REDIRECTS;
            ($node, $asking) = ($self->{known}[0], 0);
            next;
        }
        return $reply if !defined $words;
        if ($self->{nodes} && $words =~ /\A(MOVED|ASK) [0-9]+ (\S*):([0-9]+)/ && $hop < MAX_REDIRECTS) {
            my ($kind, $host, $port) = ($1, $2, $3);
            $host = $node =~ s/:[0-9]+\z//r if $host eq '';    # an empty host means the same host
            $node = "$host:$port";
            $asking = $kind eq 'ASK';
            next if $asking;
            $self->{routes}{$shard} = $node;
            push @{ $self->{known} }, $node if !grep { $_ eq $node } @{ $self->{known} };
            next;
        }
        my $refused = _refused($words);
        # The address may lead to another master now; only a new connection reaches it.
        $self->_forget($node) if $refused->{reply} =~ $DEMOTED;
        die $refused;
    }
}

# Return the reply of a node, or undef and its error reply. Dies of UNAVAILABLE without a reply.
sub _send {
    my ($self, $node, $asking, $command, @words) = @_;
    # A write to a broken connection must not end the program.
    local $SIG{PIPE} = 'IGNORE';
    my ($reply, $connected);
    # Until the reply is read completely no other call may use the connection: the next command would
    # read the rest of this reply.
    my $redis = delete $self->{redis}{$node};
    local ($@, $SIG{__DIE__});
    my $ok = eval {
        $redis //= $self->{connect}->($self->{nodes} ? $node : ());
        $connected = 1;
        $redis->asking if $asking;
        $reply = $redis->$command(@words);
        1;
    };
    if ($ok) {
        $self->{redis}{$node} = $redis;
        return $reply;
    }
    my $error = $@;
    if (!ref $error && $error =~ /\A\[\w+\] (.*?),  at .* line [0-9]+/s) {
        $self->{redis}{$node} = $redis;
        return (undef, $1);
    }
    $self->_forget($node);
    # Died of something else, for example in a signal handler.
    my $words = ref $error eq 'Redis::X::Reconnect' ? $$error : $error;
    die $error if ref $words || $words !~ $UNANSWERED;
    $words =~ s/,? +at \S+ line [0-9]+.*\z//s;
    if ($words =~ /authentication/) {
        my $refused = Acker::Redis::Error->new(REDIS => "Redis refused the user or password: $words");
        $refused->{may_pass} = 1;
        die $refused;
    }
    my $unanswered = Acker::Redis::Error->new(
        UNAVAILABLE => "Redis did not answer: $words; is it running and reachable?");
    $unanswered->{unsent} = !$connected;
    die $unanswered;
}

# Drop the connection to a node; in a cluster ask another node next: a replica may have taken over.
sub _forget {
    my ($self, $node) = @_;
    delete $self->{redis}{$node};
    my $routes = $self->{routes};
    delete $routes->{$_} for grep { $routes->{$_} eq $node } keys %$routes;
    my $known = $self->{known};
    push @$known, shift @$known if $known->[0] eq $node;
}

sub _refused {
    my ($reply) = @_;
    my $words = $reply =~ s/$IN_SCRIPT//r;
    my ($code, $message) = ('REDIS', "Redis refused the call: $words");
    if ($words =~ /\AACKER ([A-Z]+) (.*)/s) {
        ($code, $message) = ($1, $2);
    }
    elsif ($words =~ $PASSING) {
        ($code, $message) = (UNAVAILABLE => "Redis did not answer: $words; is it running and reachable?");
    }
    elsif ($words =~ /\AOOM/) {
        $message = 'Redis is at maxmemory and refused the call; nothing was changed. Raise maxmemory, lower '
          . 'high_water, or let the sources take their outcomes';
    }
    my $error = Acker::Redis::Error->new($code, $message);
    $error->{reply} = $words;
    $error->{full} = $words =~ /\AOOM/;
    $error->{may_pass} = $words =~ $PATIENT && $words !~ $NO_RIGHT_IN_SCRIPT;
    return $error;
}

1;

__END__

=encoding utf8

=head1 NAME

Acker::Redis - track tuple trees across programs: Apache Storm's acker on Redis

=head1 SYNOPSIS

    my $acker = Acker::Redis->new(
        connect   => sub { Redis->new(server => '127.0.0.1:6379', read_timeout => 5, cnx_timeout => 5) },
        namespace => 'orders',
    );
    my $tree = $acker->track('shop', 'order-17', 2);           # a source: send one message with each id
    my $message = $acker->process($id);                        # a bolt
    send_on('invoice', $message->emit);
    $message->ack;                                             # or fail($why), or touch
    $acker->flush;
    $acker->outcomes('shop', sub { replay($_[0]) if $_[0]{verdict} eq 'nack' });

=head1 DESCRIPTION

Texts are characters, not bytes. Ids are numbers below 2^63, or their decimal digits. A method that fails dies of an
C<Acker::Redis::Error> with C<code>, C<message> and C<may_pass>: whether Redis refused the call for a cause that may
pass, such as a full memory, and nothing was changed. The code is REFUSED (invalid input, nothing was sent), LANE,
UNAVAILABLE, LATE, CLOSED, REDIS, or a code of the scripts. README.md explains when rows are sent, and what
happens when a reply is lost.

=head1 METHODS OF Acker::Redis

=over

=item new(connect => sub, namespace => text, nodes => [...], retry_for => 10, linger => 0.002, on_given_up => sub)

C<connect> returns a new Redis; it is called again after an error, and in a forked child. For a cluster, C<nodes> lists the
C<host:port> of some nodes, and C<connect> gets the C<host:port> to connect to. C<retry_for> is for how many seconds a
batch is retried, C<linger> for how many seconds rows wait for others. C<on_given_up> is called with the error and the
anchors of each batch of rows that was given up.

=item track(task, source_id, emit, edge => name)

Begins a tree of C<emit> first messages (default 1), and waits until it is applied. C<edge> names the edge that the
messages travel on. Returns a reference to a hash of C<anchor>, C<ids> and C<rejected>. If C<rejected> is true, too much
is pending: emit nothing.

=item process(text, ..)

Returns an C<Acker::Redis::Message> for one message, or for several together (a join).

=item ids(count, edge)

Returns random tuple ids, for rows that the program makes itself. In a namespace with edges they carry the bit of the
edge.

=item flush

Waits until all rows are applied.

=item apply(batch)

Applies an C<Acker::Redis::Batch>, and waits. Returns a reference to a hash of C<tracked>, C<acked>, C<failed>,
C<rejected> (anchors) and C<repeated>. After UNAVAILABLE or BACKLOG the same batch may be applied again, but only before
another one is applied.

=item outcomes(task, sub) , read(task, count) , take(task, entry, ..)

C<outcomes> calls the function with each waiting outcome, a reference to a hash of C<verdict>, C<reason>, C<anchor>,
C<source_id>, C<why> and C<age_ms>. It takes an entry after all its outcomes were handled. C<read> returns entries, each
with its C<outcomes>, and C<take> deletes them.

The outcome of a tree that expired also has a C<cause>: C<idle> or C<deadline>. Its C<residual> is the XOR of the ids of
the outstanding messages; if one message is missing, it is its id. C<idle_ms> are the milliseconds since the last row,
and C<edges> refers to an array of the names of the edges on which an odd number of messages is outstanding. The values
of other outcomes are C<''>, 0, 0 and an empty array.

=back

=head1 METHODS OF Acker::Redis::Message

C<emit> returns the id, a text, to send with one message that all inputs caused; C<emit([0, 2])> for a message that only
inputs 0 and 2 caused. Options follow: C<< emit(edge => name, key => text) >>, C<< emit([0], edge => name) >>. C<edge>
names the edge that the message travels on. A name that the namespace does not list is reported once, by C<warn>. With
C<key> the id is derived from the key and the inputs; a key that was used before is REFUSED. The first C<emit> of a
client reads the configuration from Redis. If Redis does not answer, the message has no edge, which is reported once, by
C<warn>; a C<key> waits for the answer. Also: C<ack>, C<fail(why)>, C<touch>, C<is_open>.

=head1 METHODS OF Acker::Redis::Batch

C<new(task)>; C<track(anchor, source_id, [id, ..])>, C<ack(anchor, id, [id, ..])>, C<fail(anchor, why, id, [id, ..])>,
C<touch(anchor)>, C<add(anchor, delta, flags, why)>; C<size>, C<is_full>, C<is_empty>. Functions: C<new_ids(count)> (for a
namespace without edges), C<new_anchor>.

=head1 LICENSE

Apache License 2.0.

=cut
