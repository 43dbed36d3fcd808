package Acker::Redis::Ids;

# Makes the tuple ids and edge ids of a namespace: random or derived, with the code of the edge that a
# message travels on. lua/README.md of the project specifies them under "Ids".

use strict;
use warnings;
use Carp ();
use Digest::SHA ();
use Acker::Redis::Batch qw(new_ids TUPLE_MAX EDGE_BIT);

our $VERSION = '0.1.0';
our @CARP_NOT = qw(Acker::Redis Acker::Redis::Message);    # a warning names a line of the user's program

use constant MAX_WARNINGS => 1000;

# $edges has the names in the order of the configuration. $unlisted belongs to the client object: it
# collects the names that were warned of. Without a salt the configuration of the namespace is not known: ids have no
# code, which is right in any namespace.
sub new {
    my ($class, $edges, $salt, $unlisted) = @_;
    my $named = @$edges || !defined $salt;
    return bless {
        edges    => $edges,
        known    => defined $salt,
        codes    => { map { $edges->[$_] => 1 << EDGE_BIT + $_ } 0 .. $#$edges },
        low      => $named ? (1 << EDGE_BIT) - 1 : TUPLE_MAX,
        shift    => $named ? 64 - EDGE_BIT : 1,
        unlisted => $unlisted,
        # The salt is secret. No dump of the object shows the variables of a closure.
        hash => sub { return _hash($salt, @_) },
    }, $class;
}

# Return the bit of an edge in the ids of its messages. It is 0 for no name, and for a name that the
# namespace does not list.
sub code {
    my ($self, $edge) = @_;
    return 0 if !defined $edge || $edge eq '' || !$self->{known};
    my ($code, $unlisted) = ($self->{codes}{$edge}, $self->{unlisted});
    return $code if $code;
    if (!$unlisted->{$edge} && keys %$unlisted < MAX_WARNINGS) {
        $unlisted->{$edge} = 1;
        my $listed = join(', ', @{ $self->{edges} }) || 'none';
        utf8::encode($edge);
        Carp::carp("the namespace does not list edge $edge (it lists $listed): verdicts cannot name it");
    }
    return 0;
}

# Return the names of the edges on which an odd number of messages is outstanding.
sub edges_of {
    my ($self, $residual) = @_;
    return grep { $residual & $self->{codes}{$_} } @{ $self->{edges} };
}

# Return random ids without a code.
sub draw {
    my ($self, $count) = @_;
    return new_ids($count, $self->{low});
}

# Return random ids for the first messages of a tree: distinct, with an XOR that is not zero.
sub first_messages {
    my ($self, $count, $edge) = @_;
    my $code = $self->code($edge);
    while (1) {
        my @ids = $self->draw($count);
        my %distinct = map { $_ => 1 } @ids;
        my $delta = 0;
        $delta ^= $_ for @ids;
        return map { $_ | $code } @ids if !$count || ($delta && keys %distinct == $count);
    }
}

# Return the edge ids of a child with a key, one for each text of an input, without a code. Each depends
# on all inputs: another join of the same message must not share an edge id with this one. $attempt is
# higher after ids that have cancelled.
sub children {
    my ($self, $key, $attempt, @texts) = @_;
    my @parts = ('child', $key, $attempt, sort @texts);
    return map { $self->{hash}->(@parts, $_) >> $self->{shift} } @texts;
}

# Return the first 64 bits of the SHA-256 of texts, each with its length in bytes before it.
sub _hash {
    my $text = join '', map { my $part = $_; utf8::encode($part); length($part) . ":$part" } @_;
    return unpack 'Q>', Digest::SHA::sha256($text);
}

1;
