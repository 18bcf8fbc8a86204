<?php
// Loops, calls, arrays, strings and objects: everything that a page does besides input and output.

final class Node
{
    public ?Node $left = null;
    public ?Node $right = null;

    public function __construct(public int $value) {}

    public function sum(): int
    {
        return $this->value + ($this->left?->sum() ?? 0) + ($this->right?->sum() ?? 0);
    }
}

function tree(int $low, int $high): ?Node
{
    if ($low > $high) {
        return null;
    }
    $node = new Node(intdiv($low + $high, 2));
    $node->left = tree($low, $node->value - 1);
    $node->right = tree($node->value + 1, $high);
    return $node;
}

$words = [];
for ($i = 0; $i < 20000; $i++) {
    $word = 'word' . ($i * 7919 % 3001);
    $words[$word] = ($words[$word] ?? 0) + strlen($word);
}
ksort($words);
$text = implode(' ', array_map(fn($word, $count) => "$word: $count", array_keys($words), $words));
$text = preg_replace_callback('/\d+/', fn($match) => (string) ($match[0] ^ 1), $text);
echo 'done ', tree(1, 2048)->sum(), ' ', strlen(htmlspecialchars($text)), "\n";
