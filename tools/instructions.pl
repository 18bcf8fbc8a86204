#!/usr/bin/perl
# Prints what tools/instructions has counted, per request, from two outputs of tools/steps.c for different numbers of requests.
# Usage: instructions.pl NAME REQUESTS_BETWEEN MAPS FEW MANY [profile]
use strict;
use warnings;
no warnings 'portable';
my ($name, $requests, $maps, $few, $many, $profile) = @ARGV;

my (%total, %syscalls, %own, %calls, %libc);
for ([$few, -1 / $requests], [$many, 1 / $requests]) {
	my ($file, $times) = @$_;
	open my $in, '<', $file or die "$file: $!";
	while (<$in>) {
		my ($what, @of) = split;
		if ($what eq 'total') { $total{instructions} += $of[0] * $times; $total{syscalls} += $of[1] * $times }
		elsif ($what eq 'syscall') { $syscalls{$of[0]} += $of[1] * $times }
		elsif ($what eq 'libc') { $libc{$of[1]} = hex $of[0] }
		elsif ($what eq 'function') { $own{$of[0]} += $of[1] * $times }
		else { $calls{"$of[0] $of[1]"}[0] += $of[2] * $times; $calls{"$of[0] $of[1]"}[1] += $of[3] * $times }
	}
}

# Symbols of the mapped files, by address in the process.
my (@symbols, %seen);
open my $in, '<', $maps or die "$maps: $!";
while (<$in>) {
	my ($from, $to, $offset, $file) = /^([0-9a-f]+)-([0-9a-f]+) r.x. ([0-9a-f]+) \S+ \d+ +(\/.*)/ or next;
	my ($start) = map { /LOAD +0x([0-9a-f]+) 0x([0-9a-f]+).* R E/ && (hex($1) & ~0xfff) == hex($offset) ? hex($2) & ~0xfff : () }
		split /\n/, `readelf -lW '$file' 2>/dev/null`;
	my $base = hex($from) - ($start // hex $offset);
	next if $seen{"$base $file"}++;
	if ($file =~ m{/libc\b[^/]*$}) { push @symbols, [$libc{$_} + $base, $_] for keys %libc }
	for my $option ('--defined-only', '-D --defined-only') {
		for (`nm -C $option '$file' 2>/dev/null`) {
			push @symbols, [hex($1) + $base, $2] if /^([0-9a-f]+) [tTwWiu] (.*)/i;
		}
	}
}
@symbols = sort { $a->[0] <=> $b->[0] } @symbols;
# `clock_gettime` is a system call in tools/slow_clock.c alone.
$total{syscalls} -= delete $syscalls{228} // 0;

my %names;
sub name {
	my ($address) = @_;
	return $names{$address} //= do {
		my ($low, $high, $at) = (0, scalar @symbols, hex $address);
		while ($low < $high) {
			my $middle = int(($low + $high) / 2);
			if ($symbols[$middle][0] <= $at) { $low = $middle + 1 } else { $high = $middle }
		}
		my $found = $low ? $symbols[$low - 1][1] : $address;
		$found =~ s/::h[0-9a-f]{16}$//;
		$found;
	};
}

my (%functions, %edges);
$functions{name $_}[0] += $own{$_} for keys %own;
for (keys %calls) {
	my ($caller, $entry) = map { name $_ } split;
	my ($times, $all) = @{$calls{$_}};
	$functions{$entry}[1] += $times;
	$functions{$entry}[2] += $all if $caller ne $entry;
	$edges{$entry}{$caller} += $times;
}
my $allocates = '^(.*__rust_(alloc|alloc_zeroed|realloc)|(malloc|calloc|realloc|posix_memalign)@.*)$';
my $count = sub { my ($match) = @_; my $sum = 0; /$match/ and $sum += $functions{$_}[1] // 0 for keys %functions; $sum };
printf "%-18s %7.0f instructions %6.1f system calls %6.1f allocations %6.1f copies\n", $name, $total{instructions}, $total{syscalls},
	$count->($allocates), $count->('^mem(cpy|move)$');
exit unless $profile;

print "\nsystem calls by number: ", join(', ', map { sprintf '%s: %.1f', $_, $syscalls{$_} } grep { $syscalls{$_} > 0.05 } sort { $a <=> $b } keys %syscalls), "\n";
sub row { my ($function) = @_; sprintf "%8.0f %8.0f %7.1f  %s\n", (map { $functions{$function}[$_] // 0 } 0, 2, 1), $function }
for my $by (0, 2) {
	print "\n     own     with   times  function, by ", $by ? 'instructions with callees' : 'own instructions', "\n             callees\n";
	my @functions = sort { ($functions{$b}[$by] // 0) <=> ($functions{$a}[$by] // 0) } keys %functions;
	print row($_) for @functions[0 .. ($#functions < 69 ? $#functions : 69)];
}
print "\nCallers of allocations and copies\n";
for my $entry (sort grep { /$allocates|^mem(cpy|move)$/ } keys %edges) {
	my $callers = $edges{$entry};
	printf "%7.1f  %s <- %s\n", $callers->{$_}, $entry, $_ for grep { $callers->{$_} > 0.05 } sort { $callers->{$b} <=> $callers->{$a} } keys %$callers;
}
