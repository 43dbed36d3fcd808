package Acker::Redis::Batch;

# Ids, rows, batches and their encoding, without I/O. lua/README.md of the project specifies
# the protocol. The POD is in Acker/Redis.pm.

use strict;
use warnings;
use Config;
use Digest::SHA ();
use Exporter 'import';

die "acker-redis needs a perl with 64-bit integers (ivsize 8)\n" if $Config{ivsize} < 8;

our $VERSION = '0.1.0';
our @EXPORT_OK = qw(refuse new_ids new_anchor block_anchor slots_of check_name check_trees clip parse_message format_message
  TRACK FAIL TOUCH TUPLE_MAX MAX_SHARDS MIN_BUCKETS MAX_BUCKETS MAX_TAKE EDGE_BIT);

# From lua/spec.json, by python -m proof.spec
use constant { TRACK => 1, FAIL => 2, TOUCH => 4 };
use constant { MAX_ROWS => 1024, MAX_BLOCKS => 64, MAX_TEXTS => 64 * 1024, MAX_TEXT => 255, MAX_SLOTS => 4095 };
use constant { MAX_MESSAGE => 65536, MAX_TREES => 1638 };    # characters of a message id; trees of a message
use constant { MIN_BUCKETS => 2, MAX_BUCKETS => 16 };
use constant { MAX_SHARDS => 1024, MAX_TAKE => 64, EDGE_BIT => 55 };    # EDGE_BIT: the bit of edge 0

# ** would calculate with doubles.
use constant { ANCHOR_MAX => (1 << 62) - 1, TUPLE_MAX => ~0 >> 1, BLOCK_MAX => (1 << 50) - 1, BLOCK_BIT => 1 << 62 };

sub refuse { die Acker::Redis::Error->new(REFUSED => $_[0]) }

sub _said { defined $_[0] ? "'$_[0]'" : 'undef' }

# Ids

# Return a number 0 .. 2^63-1 from its decimal digits; undef for anything else. A large double prints
# with an exponent, so it is refused.
sub _number {
    my ($given) = @_;
    return undef if !defined $given || ref $given;
    my $text = "$given";
    return undef if $text !~ /\A(?:0|[1-9][0-9]{0,18})\z/ || (length $text == 19 && $text gt '9223372036854775807');
    return 0 + $text;    # ^ of two strings is another operation
}

sub check_anchor {
    my ($given) = @_;
    my $anchor = _number($given);
    return $anchor if $anchor && ($anchor <= ANCHOR_MAX || ($anchor & 4095) < MAX_SLOTS);
    refuse("an anchor is a number from 1 to 2^62-1, or the anchor of a block's tree, not " . _said($given));
}

sub check_id {
    my ($given) = @_;
    return _number($given) || refuse('a tuple id is a number from 1 to 2^63-1, not ' . _said($given));
}

sub check_delta {
    my ($given) = @_;
    return _number($given) // refuse('a delta is a number from 0 to 2^63-1, not ' . _said($given));
}

my $random;

# Return $count numbers, 1 .. $max, from the system's random source. $max is 2^n-1.
sub new_ids {
    my ($count, $max) = @_;
    $max //= TUPLE_MAX;
    if (!$random) {
        open $random, '<:raw', '/dev/urandom' or die "cannot open /dev/urandom: $!\n";
    }
    my @ids;
    # Without a pool and without rand(): a fork or a copy of the machine would draw the same ids.
    while (@ids < $count) {
        my ($bytes, $wanted) = ('', 8 * ($count - @ids));
        while (length $bytes < $wanted) {
            my $read = sysread $random, $bytes, $wanted - length $bytes, length $bytes;
            next if !defined $read && $!{EINTR};
            die "cannot read /dev/urandom: $!\n" if !$read;
        }
        push @ids, grep {$_} map { $_ & $max } unpack 'Q>*', $bytes;
    }
    return @ids;
}

# Return a random anchor of a loose tree, 1 .. 2^62-1.
sub new_anchor { return (new_ids(1, ANCHOR_MAX))[0] }

# Return the anchor of a tree in a block.
sub block_anchor {
    my ($block, $given) = @_;
    my $slot = _number($given);
    refuse('a slot is a number from 0 to ' . (MAX_SLOTS - 1) . ', not ' . _said($given)) if !defined $slot || $slot >= MAX_SLOTS;
    refuse("a block is a number from 0 to 2^50-1, not $block") if $block > BLOCK_MAX;
    return BLOCK_BIT | $block << 12 | $slot;
}

# Return the slots of a bitmap, in order: bit 7 of byte 0 is slot 0. undef if no block of $count slots has it.
sub slots_of {
    my ($bitmap, $count) = @_;
    my $bits = unpack 'B*', $bitmap;
    return undef if length $bitmap != ($count + 7) >> 3 || index($bits, '1', $count) >= 0;
    return [ grep { substr $bits, $_, 1 } 0 .. $count - 1 ];
}

sub check_name {
    my ($kind, $name) = @_;
    return $name if defined $name && $name =~ /\A[A-Za-z0-9_.-]{1,64}\z/;
    refuse("a $kind is 1 to 64 characters of A-Z a-z 0-9 _ . -, not " . _said($name));
}

my $NO_TEXT = qr/[\x{D800}-\x{DFFF}]|[^\x{0}-\x{10FFFF}]/;

# Return the UTF-8 bytes of a text, which is given in characters.
sub check_text {
    my ($kind, $text, $least) = @_;
    refuse("a $kind is text, not " . _said($text)) if !defined $text || ref $text;
    # Encode would also refuse noncharacters such as U+FFFF, which are valid.
    refuse("a $kind is text that UTF-8 can encode") if $text =~ $NO_TEXT;
    my $data = $text;
    utf8::encode($data);
    my $bytes = length $data;
    refuse("a $kind has $least to ${\MAX_TEXT} bytes, this one $bytes") if $bytes < $least || $bytes > MAX_TEXT;
    refuse("a $kind must not contain control characters") if $data =~ /[\x00-\x1f\x7f]/;
    return $data;
}

# Check a whole row; return its anchor, its delta, its flags and the bytes of its why.
sub check_row {
    my ($anchor, $delta, $flags, $why) = @_;
    refuse('flags of a whole row are FAIL, TOUCH, both or 0') if ($flags // 0) !~ /\A[0246]\z/;
    return (check_anchor($anchor), check_delta($delta), $flags // 0,
        ($flags // 0) & FAIL ? check_text('why', $why // '', 0) : '');
}

# Return a text that fits the why of a row: at most 255 bytes, without control characters.
sub clip {
    my ($words) = @_;
    my $text = substr defined $words ? "$words" : '', 0, MAX_TEXT;
    $text =~ s/[\x00-\x1f\x7f]/ /g;
    $text =~ s/$NO_TEXT/\x{FFFD}/g;
    utf8::encode($text);
    $text = substr $text, 0, MAX_TEXT;
    chop $text while !utf8::decode($text);    # a character that was cut
    return $text;
}

# Return the XOR of distinct tuple ids; equal ids would cancel.
sub xor_ids {
    my ($ids) = @_;
    refuse('ids are a reference to an array') if ref $ids ne 'ARRAY';
    my ($delta, %seen) = (0);
    for my $id (map { check_id($_) } @$ids) {
        refuse('two messages have the same tuple id; draw an id for each') if $seen{$id}++;
        $delta ^= $id;
    }
    return $delta;
}

# Return the delta of a processed message: its id XOR the ids of all messages that it caused.
sub whole {
    my ($tuple, $emitted) = @_;
    $tuple = check_id($tuple);
    my $delta = $tuple ^ xor_ids($emitted);
    refuse('a message and one that it caused have the same id; draw another') if grep { $_ == $tuple } @$emitted;
    return $delta;
}

# Messages

# Parse a message id, <anchor>:<tuple> joined by commas; return its tuple ids by anchor.
sub parse_message {
    my ($text) = @_;
    refuse('a message id is text, not ' . _said($text)) if !defined $text || ref $text;
    refuse('the text of a message id has at most ' . MAX_MESSAGE . ' characters') if length $text > MAX_MESSAGE;
    return {} if $text =~ /\A[ \t]*\z/;
    my %ids;
    for my $pair (split /,/, $text, -1) {
        $pair =~ /\A[ \t]*([0-9]{1,19}):([0-9]{1,19})[ \t]*\z/
          or refuse('an anchored tuple is <anchor>:<tuple>, not ' . _said(substr($pair, 0, 50) =~ tr/0-9/#/r));    # an id of a log is enough to ack its message
        my ($anchor, $id) = map { s/\A0+(?=[0-9])//r } $1, $2;
        $anchor = check_anchor($anchor);
        refuse("anchor $anchor occurs twice in one message id") if exists $ids{$anchor};
        $ids{$anchor} = check_id($id);
    }
    return check_trees(\%ids);
}

# Return the text of a message id, ordered by anchor.
sub format_message {
    my ($ids) = @_;
    return join ',', map {"$_:$ids->{$_}"} sort { $a <=> $b } keys %$ids;
}

sub check_trees {
    my ($ids) = @_;
    refuse('a message belongs to at most ' . MAX_TREES . ' trees; emit several, each anchored to some of the inputs')
      if keys %$ids > MAX_TREES;
    return $ids;
}

# Batches

sub new {
    my ($class, $task) = @_;
    check_name('task', $task) if defined $task;
    return bless { task => $task, rows => {}, order => [], texts => 0 }, $class;
}

sub size { return scalar @{ $_[0]{order} } }
sub is_empty { return !@{ $_[0]{order} } }

# Return whether another row might not fit.
sub is_full { return @{ $_[0]{order} } >= MAX_ROWS || $_[0]{texts} > MAX_TEXTS - MAX_TEXT }
sub only_tracks { return !grep { !($_->{flags} & TRACK) } @{ $_[0]{order} } }
sub anchors { return map { $_->{anchor} } @{ $_[0]{order} } }

sub track {
    my ($self, $anchor, $source_id, $emitted) = @_;
    $self->_needs_task;
    my $text = check_text('source id', $source_id, 1);
    $anchor = check_anchor($anchor);
    refuse("anchor $anchor is in a block; this client tracks no blocks") if $anchor > ANCHOR_MAX;
    my $row = $self->{rows}{$anchor};
    refuse("anchor $anchor is tracked twice; draw a new anchor for each attempt") if $row && $row->{flags} & TRACK;
    $self->_fold($anchor, xor_ids($emitted), TRACK, $text)->{source} = $text;
    return $self;
}

sub ack {
    my ($self, $anchor, $tuple, $emitted) = @_;
    $self->_fold(check_anchor($anchor), whole($tuple, $emitted // []), 0, '');
    return $self;
}

sub fail {
    my ($self, $anchor, $why, $tuple, $emitted) = @_;
    $emitted //= [];
    return $self->add($anchor, defined $tuple ? whole($tuple, $emitted) : xor_ids($emitted), FAIL, $why);
}

sub touch { return $_[0]->add($_[1], 0, TOUCH) }

# Fold in a whole row: the delta of a message, and FAIL or TOUCH.
sub add {
    my $self = shift;
    my ($anchor, $delta, $flags, $text) = check_row(@_);
    my $row = $self->{rows}{$anchor};
    $text = '' if $row && length $row->{why};    # the first non-empty why wins
    $row = $self->_fold($anchor, $delta, $flags, $text);
    $row->{why} = $text if length $text;
    return $self;
}

sub _needs_task {
    defined $_[0]{task} or refuse(q{a TRACK row needs a source: use Acker::Redis::Batch->new('task')});
}

sub _room {
    my ($self, $rows, $texts) = @_;
    refuse('this batch was already sent; add new rows to a new batch') if $self->{sent};
    refuse("a batch has at most ${\MAX_ROWS} rows and ${\MAX_TEXTS} bytes of texts; apply this one and begin another")
      if @{ $self->{order} } + $rows > MAX_ROWS || $self->{texts} + $texts > MAX_TEXTS;
}

sub _fold {
    my ($self, $anchor, $delta, $flags, $text) = @_;
    my $row = $self->{rows}{$anchor};
    $self->_room($row ? 0 : 1, length $text);
    if (!$row) {
        $row = $self->{rows}{$anchor} = { anchor => $anchor, delta => 0, flags => 0, source => '', why => '' };
        push @{ $self->{order} }, $row;
    }
    $self->{texts} += length $text;
    # Flags first: an interruption here must not leave the delta of a failed message without FAIL.
    $row->{flags} |= $flags;
    $row->{delta} ^= $delta;
    return $row;
}

# Return the calls to send: the loose rows of each shard, then those of trees in blocks. Each call has script, shard,
# argv and anchors: of its loose rows.
sub parts {
    my ($self, $shards) = @_;
    my (%loose, %in_block, @blocks, @shards, @parts);
    for my $row (@{ $self->{order} }) {
        if ($row->{anchor} > ANCHOR_MAX) {
            my $block = $row->{anchor} >> 12 & BLOCK_MAX;
            push @blocks, $block if !$in_block{$block};
            push @{ $in_block{$block} }, $row;
        }
        else {
            my $shard = $row->{anchor} % $shards;
            push @shards, $shard if !$loose{$shard};
            push @{ $loose{$shard} }, $row;
        }
    }
    push @parts, $self->_pack_loose($_, $loose{$_}) for @shards;
    my %of_shard;
    for my $block (@blocks) {
        my $shard = $block % $shards;
        my $call = $of_shard{$shard};
        # The limits of a batch imply the other limits of a call.
        if (!$call || $call->{blocks}++ == MAX_BLOCKS) {
            $call = $of_shard{$shard} = { script => 'apply_blocks', shard => $shard, argv => [], anchors => [], blocks => 1 };
            push @parts, $call;
        }
        push @{ $call->{argv} }, _pack_block($block, $in_block{$block});
    }
    return \@parts;
}

sub _pack_loose {
    my ($self, $shard, $rows) = @_;
    my @sources = map { $_->{source} } grep { $_->{flags} & TRACK } @$rows;
    my @whys = map { $_->{why} } grep { $_->{flags} & FAIL } @$rows;
    my @anchors = map { $_->{anchor} } @$rows;
    my @argv = (
        pack('C*', map { $_->{flags} } @$rows),
        pack('Q>*', @anchors),
        pack('Q>*', map { $_->{delta} } @$rows),
        @sources ? $self->{task} : '',
        @sources, @whys
    );
    return { script => 'apply', shard => $shard, argv => \@argv, anchors => \@anchors };
}

# Return the seven arguments of a block that another client has tracked.
sub _pack_block {
    my ($block, $rows) = @_;
    my @rows = sort { $a->{anchor} <=> $b->{anchor} } @$rows;
    my @changed = grep { $_->{delta} } @rows;
    my $flags = (grep { $_->{flags} & TOUCH } @rows) ? TOUCH : 0;
    my $slots = pack 'n*', map { $_->{anchor} & 4095 } @changed;
    my $failed = join '', map { pack('nC', $_->{anchor} & 4095, length $_->{why}) . $_->{why} }
      grep { $_->{flags} & FAIL } @rows;
    return (pack('C', $flags), pack('Q>', $block), '', '', $slots, pack('Q>*', map { $_->{delta} } @changed), $failed);
}

# Return 16 hex digits that identify the content of a call.
sub digest {
    my ($part) = @_;
    return $part->{digest} //= substr Digest::SHA::sha256_hex(map { length($_) . " $_" } @{ $part->{argv} }), 0, 16;
}

package Acker::Redis::Error;

use strict;
use warnings;
use overload '""' => sub { "$_[0]{code}: $_[0]{message}" }, fallback => 1;

sub new { my ($class, $code, $message) = @_; return bless { code => $code, message => $message }, $class }
sub code { return $_[0]{code} }
sub message { return $_[0]{message} }
sub may_pass { return $_[0]{may_pass} }

1;
