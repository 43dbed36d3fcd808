package Acker::Redis::Message;

# Messages that are processed together, usually one, and the messages that they caused.
# Acker::Redis->process creates it.

use strict;
use warnings;
use Acker::Redis::Batch qw(refuse check_trees clip parse_message format_message FAIL TOUCH);

our $VERSION = '0.1.0';

sub new {
    my ($class, $acker, @texts) = @_;
    my @inputs = map { parse_message($_) } @texts;
    my %seen;
    for my $ids (@inputs) {
        for my $anchor (keys %$ids) {
            refuse("a message of tree $anchor is given twice; its rows would cancel")
              if $seen{"$anchor:$ids->{$anchor}"}++;
        }
    }
    # edges has the XOR of the edge ids of each input, without codes; codes has for each input, by anchor,
    # the XOR of the codes of its edge ids in that tree.
    my %rows = (inputs => \@inputs, edges => [ (0) x @inputs ], codes => [ map { {} } @inputs ]);
    return bless { acker => $acker, %rows, keys => {}, state => 'open', pid => $$ }, $class;
}

# Return the id, a text, for one message that all inputs caused, or only the inputs at these places. The
# options are edge, the name of the edge that it travels on, and key, from which its id is derived.
sub emit {
    my $self = shift;
    my $given = @_ % 2 ? shift : undef;
    my %options = @_;
    my ($edge, $key) = delete @options{qw(edge key)};
    refuse('emit has the options edge and key, not ' . join ', ', sort keys %options) if %options;
    refuse('a key is text') if ref $key;
    $self->_check_open;
    my @places = $self->_places($given);
    refuse("key $key was already used for another message; give each child its own")
      if defined $key && $self->{keys}{$key};
    my $maker = $self->{acker}->_maker_of(defined $key && @places > 0);
    $self->_check_open;    # again: a signal handler may have acked the message during the call of Redis
    my $code = $maker->code($edge);
    my @inputs = @{ $self->{inputs} }[@places];
    my ($edges, $child) = _child($maker, \@inputs, $key);
    check_trees($child);
    # First the key: after an interruption a second use would cancel the edge ids of the first.
    $self->{keys}{$key} = 1 if defined $key;
    # Add the edge ids to the rows before the caller gets the id.
    $self->{edges}[ $places[$_] ] ^= $edges->[$_] for 0 .. $#places;
    return format_message($child) if !$code;
    my $carriers = _carriers(\@inputs);
    for my $anchor (keys %$carriers) {
        my $codes = $self->{codes}[ $places[ $carriers->{$anchor} ] ];
        $codes->{$anchor} = ($codes->{$anchor} // 0) ^ $code;
    }
    return format_message({ map { $_ => $child->{$_} | $code } keys %$child });
}

# Check the places of inputs; leave out inputs that belong to no tree.
sub _places {
    my ($self, $given) = @_;
    my $inputs = $self->{inputs};
    my @places = !defined $given ? 0 .. $#$inputs : ref $given ? @$given : $given;
    my %seen;
    for my $place (@places) {
        refuse("there is no input $place; inputs are numbered from 0")
          if $place !~ /\A[0-9]{1,9}\z/ || $place > $#$inputs;
        refuse('an input is given twice') if $seen{ 0 + $place }++;
    }
    return grep { %{ $inputs->[$_] } } @places;
}

# Return an edge id for each input, and the id of the child by anchor, without codes.
sub _child {
    my ($maker, $inputs, $key) = @_;
    my @texts = defined $key ? map { format_message($_) } @$inputs : ();
    for (my $attempt = 0;; $attempt++) {
        my @edges = defined $key ? $maker->children($key, $attempt, @texts) : $maker->draw(scalar @$inputs);
        my %ids;
        for my $n (0 .. $#$inputs) {
            $ids{$_} = ($ids{$_} // 0) ^ $edges[$n] for keys %{ $inputs->[$n] };
        }
        return (\@edges, \%ids) if !grep { !$_ } values %ids;    # else they cancel: probability 2^-55
    }
}

# Return by anchor the number of the input that has the least id in that tree.
sub _carriers {
    my ($inputs) = @_;
    my %carriers;
    for my $n (0 .. $#$inputs) {
        for my $anchor (keys %{ $inputs->[$n] }) {
            my $least = $carriers{$anchor} //= $n;
            $carriers{$anchor} = $n if $inputs->[$n]{$anchor} < $inputs->[$least]{$anchor};
        }
    }
    return \%carriers;
}

sub ack {
    my ($self) = @_;
    $self->_check_open;
    my @rows = $self->_rows(1, 0, '');
    $self->{state} = 'acked';
    return $self->{acker}->add(@rows);
}

# Fail the trees of the inputs. After an ack the row has only FAIL, not the deltas again.
sub fail {
    my ($self, $why) = @_;
    $self->_check_open if $self->{state} ne 'acked';
    $self->_check_process;
    my @rows = $self->_rows($self->{state} eq 'open', FAIL, clip($why));
    $self->{state} = 'failed';
    return $self->{acker}->add(@rows);
}

sub touch {
    my ($self) = @_;
    $self->_check_open;
    return $self->{acker}->add($self->_rows(0, TOUCH, ''));
}

sub is_open { return $_[0]{state} eq 'open' }

sub _check_open {
    my ($self) = @_;
    die Acker::Redis::Error->new(CLOSED => "this message was $self->{state} before") if $self->{state} ne 'open';
    $self->_check_process;
}

# A message emitted in a child would be missing in the parent's row: the tree could be acked falsely.
sub _check_process {
    my ($self) = @_;
    die Acker::Redis::Error->new(CLOSED => 'this message was begun before the fork: only the parent process '
          . q{may emit, ack or touch it; fork first, or pass the message's id to the child})
      if $self->{pid} != $$;
}

sub _rows {
    my ($self, $whole, $flags, $why) = @_;
    my (%deltas, @order);
    for my $n (0 .. $#{ $self->{inputs} }) {
        my ($ids, $edges, $codes) = map { $_->[$n] } @$self{qw(inputs edges codes)};
        for my $anchor (sort { $a <=> $b } keys %$ids) {
            push @order, $anchor if !exists $deltas{$anchor};
            my $own = $whole ? $ids->{$anchor} ^ $edges ^ ($codes->{$anchor} // 0) : 0;
            $deltas{$anchor} = ($deltas{$anchor} // 0) ^ $own;
        }
    }
    return map { [ $_, $deltas{$_}, $flags, $why ] } @order;
}

1;
